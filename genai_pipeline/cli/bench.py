"""``genai-pipeline bench PACKAGE``: throughput and latency under a load shape, beside a peer if asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from genai_pipeline.cli.output import Output, write, write_json
from genai_pipeline.cli.outputs import answer_of
from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.checking import CheckedPackage
    from genai_pipeline.cli.benching.contest import Contestant
    from genai_pipeline.cli.benching.load import Encode, Load

OWN = "genai-pipeline"
_OTHER_LOADS = "tools/bench_media.py measures packages that see, hear and speak"
_PEERS = ("onnxruntime-genai",)
_ROWS = (
    ("output tokens/s", "output_tokens_per_second", 1.0),
    ("total tokens/s", "total_tokens_per_second", 1.0),
    ("requests/s", "requests_per_second", 1.0),
    ("first token p50, ms", "first_token_seconds.p50", 1000.0),
    ("first token p90, ms", "first_token_seconds.p90", 1000.0),
    ("first token p99, ms", "first_token_seconds.p99", 1000.0),
    ("between tokens p50, ms", "between_tokens_seconds.p50", 1000.0),
    ("between tokens p90, ms", "between_tokens_seconds.p90", 1000.0),
    ("between tokens p99, ms", "between_tokens_seconds.p99", 1000.0),
    ("whole request p50, ms", "request_seconds.p50", 1000.0),
    ("cached prompt tokens", "cached_tokens", 1.0),
    ("wall seconds", "wall_seconds", 1.0),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    ctx: typer.Context,
    package: Annotated[str, typer.Argument(help="A folder, a metadata file, or a name from 'list'.")],
    requests: Annotated[int, typer.Option(help="Requests per round.")] = 16,
    concurrency: Annotated[int | None, typer.Option(help="Clients that send one after another (default 4).")] = None,
    rate: Annotated[float | None, typer.Option(help="Instead: requests per second, arriving at random.")] = None,
    prompt_tokens: Annotated[str, typer.Option(metavar="N|N-M", help="Tokens of each prompt.")] = "128",
    output_tokens: Annotated[str, typer.Option(metavar="N|N-M", help="Tokens to generate for each.")] = "64",
    shared_prefix: Annotated[int, typer.Option(help="Tokens before them that all prompts share.")] = 0,
    seed: Annotated[int, typer.Option(help="Same seed, same load.")] = 0,
    warm_up: Annotated[int, typer.Option(help="Requests before anything is measured.")] = 2,
    rounds: Annotated[int, typer.Option(help="Measured rounds; figures are medians over them.")] = 1,
    peer: Annotated[str | None, typer.Option(help="Run the same load there too: onnxruntime-genai.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    precision: Annotated[str | None, typer.Option(help="Of a known package: the variant to use.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the runtime.")] = None,
    context_length: Annotated[int | None, typer.Option(help="Lower the package's context to this.")] = None,
    prefill_chunk: Annotated[int | None, typer.Option(help="Prompt tokens per prefill run, at least 3.")] = None,
    max_batch: Annotated[int | None, typer.Option(help="Most sequences that run at once.")] = None,
    memory: Annotated[str | None, typer.Option(help="Bound of cache memory: 2GiB, 0.5, auto.")] = None,
    no_prefix_cache: Annotated[bool, typer.Option("--no-prefix-cache", help="Compute every prompt in full.")] = False,
    policy: Annotated[str | None, typer.Option(help="Who comes first: priority, first_come, fair_share.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, ort, nxrt, or another that is installed.")] = None,
    provider: Annotated[list[str] | None, typer.Option(help="As for run.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto there.")] = None,
) -> None:
    """Measure tokens per second and latencies under a load."""
    shape: dict[str, Any] = {"requests": requests, "concurrency": concurrency, "rate": rate}
    shape |= {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    load = _load({**shape, "shared_prefix": shared_prefix, "seed": seed})
    _at_least("rounds", rounds, 1)
    _at_least("warm_up", warm_up, 0)
    _check_peer(peer)
    given: dict[str, Any] = {"threads": threads, "providers": provider or None, "context_length": context_length}
    given |= {
        "backend": backend,
        "prefill_chunk": prefill_chunk,
        "max_batch": max_batch,
        "memory": memory,
        "policy": policy,
    }
    given |= {"prefix_cache": False if no_prefix_cache else None, "profile": profile}
    options = {name: value for name, value in given.items() if value is not None}
    selection: dict[str, Any] = {name: options[name] for name in ("backend", "providers") if name in options}
    path, encode = _package(ctx.obj, package, precision, selection)
    with ExitStack() as held:
        contestants = {
            name: held.enter_context(closing(make())) for name, make in _contestants(path, options, peer, load).items()
        }
        measured = _measure(ctx.obj, contestants, load, encode, rounds=rounds, warm_up=warm_up)
    report = _report(path, load, measured)
    write_json(report) if as_json else write(table(report))
    if any(round["failed"] for rounds_ in measured.values() for round in rounds_):
        raise typer.Exit(1)


def _load(shape: Mapping[str, Any]) -> Load:
    """The load that the options describe: a closed one of four clients unless they say otherwise."""
    from genai_pipeline.cli.benching.load import Lengths, Load

    lengths = {name: Lengths.parse(shape[name], name) for name in ("prompt_tokens", "output_tokens")}
    unsaid = shape["concurrency"] is None and shape["rate"] is None
    return Load(**{**shape, **lengths, **({"concurrency": 4} if unsaid else {})})


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise OptionError(f"{name} must be at least {low}, not {value}", param=name)


def _check_peer(peer: str | None) -> None:
    """Raise OptionError for a peer nobody knows, RuntimeMissingError for one that is not installed."""
    from genai_pipeline.problems import nearest, one_of

    if peer is None:
        return
    if peer not in _PEERS:
        hint = nearest(peer, _PEERS) or f"peers are: {one_of(_PEERS)}"
        raise OptionError(f"unknown peer '{peer}'", param="peer", hint=hint)
    from genai_pipeline.cli.benching.peer import require_peer

    require_peer()


def _package(output: Output, package: str, precision: str | None, selection: Mapping[str, Any]) -> tuple[str, Encode]:
    """The package's path, and how its prompts are encoded. Raises PackageInvalidError, OptionError."""
    from genai_pipeline.cli.packages import checked

    path, found = checked(output, package, precision, selection)
    return path, _encoder(found)


def _encoder(found: CheckedPackage) -> Encode:
    """The tokenizer of the package's one text input. Raises OptionError for what bench cannot measure."""
    from genai_pipeline.problems import one_of

    assert found.spec is not None
    name, inputs = found.spec.name, found.spec.inputs.values()
    if answer_of(found.spec) is None:
        gives = one_of(f"{output} ({spec.modality})" for output, spec in found.spec.outputs.items())
        message = f"bench counts tokens of an answer, which '{name}' does not make: it gives {gives}"
        raise OptionError(message, param="package", hint=_OTHER_LOADS)
    texts = [spec for spec in inputs if spec.modality == "text"]
    if len(texts) != 1 or any(spec.required for spec in inputs if spec.modality != "text"):
        takes = one_of(f"{spec.name} ({spec.modality})" for spec in inputs)
        message = f"bench sends one text and nothing else, and '{name}' takes {takes}"
        raise OptionError(message, param="package", hint=_OTHER_LOADS)
    tokenizer = found.tokenizers[texts[0].tokenizer or "default"]
    return lambda text: tokenizer.encode_text(text, False)


def _contestants(
    path: str, options: Mapping[str, Any], peer: str | None, load: Load
) -> dict[str, Callable[[], Contestant]]:
    """Who runs the load: in this process when alone, each in its own when there is a peer."""
    from genai_pipeline.cli.benching.contest import Remote, own

    if peer is None:
        return {OWN: lambda: own(path, options)}
    bounds = {"max_length": load.max_tokens}
    return {OWN: lambda: Remote("own", path, options), peer: lambda: Remote("peer", path, bounds)}


def _measure(
    output: Output, contestants: Mapping[str, Contestant], load: Load, encode: Encode, *, rounds: int, warm_up: int
) -> dict[str, list[dict[str, Any]]]:
    """The figures of every round, by contestant; contestants take turns."""
    from genai_pipeline.cli.benching.measure import figures

    for name, contestant in contestants.items():
        if warm_up:
            output.note(f"{name}: warming up")
            contestant.run(load.warm_up(encode, warm_up))
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
    for round in range(rounds):
        schedule = load.schedule(encode, round)
        for name, contestant in contestants.items():
            records = contestant.run(schedule)
            measured[name].append(figures(records))
            rate = measured[name][-1].get("output_tokens_per_second")
            output.note(f"round {round + 1} of {rounds}: {name}" + (f" {rate:.1f} tokens/s" if rate else ""))
            for error in sorted({record.error for record in records if record.error is not None}):
                output.note(f"  failed: {error}")
    return measured


def _report(path: str, load: Load, measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Everything that was measured, as JSON-ready fields."""
    from genai_pipeline.cli.benching.measure import medians, ratios

    peers = [name for name in measured if name != OWN]
    return {
        "package": path,
        "load": {**load.to_dict(), "text": str(load)},
        "contestants": {name: {"median": medians(rounds), "rounds": list(rounds)} for name, rounds in measured.items()},
        "times_better_than": {name: ratios(measured[OWN], measured[name]) for name in peers},
    }


def table(report: Mapping[str, Any]) -> str:
    """The medians side by side, and how many times better than each peer."""
    from genai_pipeline.cli.benching.measure import figure

    names = list(report["contestants"])
    peers = list(report["times_better_than"])
    lines = [["", *names, *(f"times better than {name}" for name in peers)]]
    for title, path, scale in _ROWS:
        values = [figure(report["contestants"][name]["median"], path) for name in names]
        if any(value is not None for value in values):
            ratios = [report["times_better_than"][name].get(path) for name in peers]
            cells = ["" if value is None else f"{value * scale:.1f}" for value in values]
            lines.append([title, *cells, *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    return "\n".join([report["load"]["text"], "", *(row.rstrip() for row in rows)]) + "\n"
