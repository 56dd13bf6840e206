"""A draft model follows its targets: it drafts what its own graph says after the target's tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.checking import check_package
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.draft_model import LAG, DraftModel, DraftPackage, open_draft_model
from genai_pipeline.engine.graphs import load_graphs
from genai_pipeline.engine.memory import _process_budget, claim_memory
from genai_pipeline.engine.request import Request, RequestState
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.engine.text_output import TextOutput
from genai_pipeline.errors import GraphRunError
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.speculative.drafter import Want
from genai_pipeline.testing import TinyPackage, write_package

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("kv", {"update": "in_place"}),
    ("kv", {"update": "append"}),
    ("kv", {"update": "scatter"}),
    ("recurrent", {}),
    ("table", {}),
]
Open = Callable[..., tuple[DraftModel, TinyPackage]]
Draws = list[tuple[int, int]]


def sequence(tokens: list[int], id: int = 1, prompt: int | None = None) -> Sequence:
    """A target sequence with ``prompt`` tokens of prompt."""
    count = len(tokens) if prompt is None else prompt
    state = RequestState(Request({}, GenerationOptions(temperature=0), id))
    made = Sequence(
        id,
        state,
        "generate",
        tuple(tokens[:count]),
        max_tokens=100,
        seed=id,
        choice=0,
        text=TextOutput(None, ()),
    )
    made.tokens += tokens[count:]
    return made


def greedy(logits: np.ndarray[Any, np.dtype[np.float32]], places: list[tuple[Sequence, int]]) -> list[int]:
    assert len(logits) == len(places)
    return [int(row.argmax()) for row in logits]


def drafts(model: DraftModel, *targets: Sequence, most: int = 4) -> list[list[int]]:
    return [list(tokens) for tokens in model.propose([Want(target, most) for target in targets]).drafts]


@pytest.fixture
def open_model(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:
        count = 0

        def open_(
            kind: str = "kv",
            *,
            choose: Any = greedy,
            memory: str = "64MiB",
            load: dict[str, Any] | None = None,
            model: dict[str, Any] | None = None,
            **options: Any,
        ) -> tuple[DraftModel, TinyPackage]:
            nonlocal count
            count += 1
            package = write_package(tmp_path / f"draft{count}", kind, **options)
            checked = check_package(package.path)
            assert checked.plan is not None
            claim = claim_memory(memory, useful=1 << 26)
            stack.callback(claim.release)
            loading = LoadOptions.of(**(load or {}))
            made = open_draft_model(
                DraftPackage(checked.plan, checked.plan.stage("generate"), checked.tokenizers),
                load_graphs(checked.plan, OrtBackend(), loading, stack),
                loading,
                claim,
                choose,
                resources=stack,
                **{"context": 256, "width": None, **(model or {})},
            )
            return made, package

        yield open_


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_drafts_are_what_the_draft_model_would_say(open_model: Open, kind: str, options: dict[str, Any]) -> None:
    model, package = open_model(kind, **options)
    target = sequence([20, 21, 22, 23])
    assert drafts(model, target) == [package.expected(target.tokens, 4)]


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("accepted", [0, 1, 3, 4])
def test_wrong_drafts_are_taken_back(open_model: Open, kind: str, options: dict[str, Any], accepted: int) -> None:
    model, package = open_model(kind, **options)
    target = sequence(list(range(20, 40)), prompt=18)
    for turn in range(6):
        found = drafts(model, target)[0]
        assert found == package.expected(target.tokens, 4)
        target.tokens += [*found[:accepted], 30 + turn]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_tokens_that_came_meanwhile_are_caught_up_on(open_model: Open, kind: str, options: dict[str, Any]) -> None:
    model, package = open_model(kind, **options)
    target = sequence([20, 21, 22])
    drafts(model, target)
    for more in (1, 2, LAG, LAG + 1, 40):
        target.tokens += [25 + i % 30 for i in range(more)]
        assert drafts(model, target) == [package.expected(target.tokens, 4)]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_several_sequences_draft_at_once(open_model: Open, kind: str, options: dict[str, Any]) -> None:
    model, package = open_model(kind, **options)
    targets = [sequence([20 + i, *range(30, 33 + 3 * i)], id=i) for i in range(4)]
    for turn in range(4):
        found = model.propose([Want(target, 1 + target.id) for target in targets]).drafts
        assert [list(tokens) for tokens in found] == [package.expected(t.tokens, 1 + t.id) for t in targets]
        for target, tokens in zip(targets, found, strict=True):
            target.tokens += [*tokens[: target.id], 40 + turn]
    assert drafts(model, targets[2], targets[0]) == [package.expected(targets[i].tokens, 4) for i in (2, 0)]


def test_each_draft_is_chosen_as_the_token_at_its_index(open_model: Open) -> None:
    asked: Draws = []

    def choose(logits: Any, places: list[tuple[Sequence, int]]) -> list[int]:
        asked.extend((target.id, index) for target, index in places)
        return greedy(logits, places)

    model, _ = open_model("table", choose=choose)
    drafts(model, sequence([20, 21, 22, 23, 24], id=5, prompt=3), most=3)
    assert asked == [(5, 2), (5, 3), (5, 4)]


def test_what_is_chosen_goes_on_in_the_draft_models_state(open_model: Open) -> None:
    model, package = open_model("kv", choose=lambda logits, places: [33 for _ in places])
    target = sequence([20, 21, 22])
    assert drafts(model, target) == [[33] * 4]
    target.tokens += [33, 33, 33, 33]
    model._choose = greedy
    assert drafts(model, target) == [package.expected(target.tokens, 4)]


def test_a_long_prompt_is_run_a_chunk_per_call(open_model: Open) -> None:
    model, package = open_model("kv", load={"prefill_chunk": 32})
    target = sequence([20 + i % 50 for i in range(100)])
    assert [drafts(model, target) for _ in range(2)] == [[[]], [[]]]
    target.tokens.append(21)
    assert drafts(model, target) == [package.expected(target.tokens, 4)]


def test_only_pauses_count_as_catching_up(open_model: Open) -> None:
    ticks = iter(range(1000))
    model, _ = open_model("table")
    model._clock = lambda: float(next(ticks))
    target = sequence([20] * 30)
    first = model.propose([Want(target, 2)])
    target.tokens += [21] * 30
    second = model.propose([Want(target, 2)])
    assert (first.catching_up, second.catching_up) == (0, 1)
    assert first.seconds == second.seconds == 1


def test_rows_are_taken_from_sequences_that_wait_the_longest(open_model: Open) -> None:
    model, package = open_model("kv", load={"max_batch": 2})
    first, second, third = (sequence([20 + i, 30, 31], id=i) for i in range(3))
    drafts(model, first, second)
    assert model.num_rows == 2
    assert drafts(model, third) == [package.expected(third.tokens, 4)]
    assert model.num_rows == 2
    assert drafts(model, second, third) == [package.expected(t.tokens, 4) for t in (second, third)]
    # three at once are one too many: the last one gets none, and nobody else suffers
    assert drafts(model, second, third, first) == [
        package.expected(second.tokens, 4),
        package.expected(third.tokens, 4),
        [],
    ]


def test_too_few_pages_mean_no_drafts(open_model: Open) -> None:
    model, package = open_model("kv", memory="16KiB")
    pages = model._pool.num_pages
    short, long = sequence([20, 21, 22]), sequence([20 + i % 50 for i in range(pages * 16)], id=2)
    assert pages < 16
    assert drafts(model, short) == [package.expected(short.tokens, 4)]
    assert drafts(model, short, long) == [package.expected(short.tokens, 4), []]


def test_drafts_stay_within_the_context(open_model: Open) -> None:
    model, package = open_model("kv", model={"context": 32})
    target = sequence([20 + i for i in range(30)])
    assert drafts(model, target) == [package.expected(target.tokens, 3)]
    target.tokens += [20, 21]
    assert drafts(model, target) == [package.expected(target.tokens, 1)]
    target.tokens += [20]
    assert model.source(target) is None


def test_logits_are_brought_to_the_width_of_the_target(open_model: Open) -> None:
    widths: list[int] = []

    def choose(logits: Any, places: list[tuple[Sequence, int]]) -> list[int]:
        widths.append(logits.shape[1])
        return greedy(logits, places)

    wide, package = open_model("table", choose=choose, model={"width": 200}, size=150)
    narrow, _ = open_model("table", choose=choose, model={"width": 120}, size=150)
    target = sequence([20, 21])
    assert drafts(wide, target, most=2) == [package.expected(target.tokens, 2)]
    assert drafts(narrow, target, most=2) == [package.expected(target.tokens, 2)]
    assert widths == [200, 200, 120, 120]


def test_ended_sequences_give_their_rows_back_and_their_prompts_stay_cached(open_model: Open) -> None:
    model, package = open_model("kv")
    tokens = [20 + i % 50 for i in range(80)]
    drafts(model, sequence(tokens, id=1))
    model.forget(1)
    model.forget(1)
    assert model.num_rows == 0
    assert model._pool.usage().pages == 0
    again = sequence([*tokens, 33], id=2)
    assert drafts(model, again) == [package.expected(again.tokens, 4)]
    shadow = model._rows[2].shadow
    assert shadow.num_cached >= 64


def test_a_failed_run_ends_drafting_for_the_sequence_and_says_so(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, package = open_model("kv")
    good, bad = sequence([20, 21, 22], id=1), sequence([25, 26, 27, 28], id=2)
    drafts(model, good, bad)
    run = model._loop.run

    def fails(kind: str, batch: Any) -> Any:
        if any(s.id == 2 for s in batch.sequences):
            raise GraphRunError("no luck")
        return run(kind, batch)

    monkeypatch.setattr(model._loop, "run", fails)
    bad.tokens += [20]
    assert drafts(model, bad) == [[]]
    assert model.source(bad) is None
    assert bad.request.notes == ["drafting stopped: no luck"]
    good.tokens += [30]
    assert drafts(model, good) == [package.expected(good.tokens, 4)]
    model.forget(2)
    assert model.source(bad) is not None


def test_nothing_to_do_gives_nothing(open_model: Open) -> None:
    model, _ = open_model("table")
    assert model.propose([]).drafts == ()


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    package = write_package(tmp_path, "kv")
    checked = check_package(package.path)
    assert checked.plan is not None
    before = _process_budget().claimed
    with ExitStack() as resources:
        claim = claim_memory("8MiB", useful=1)
        resources.callback(claim.release)
        model = open_draft_model(
            DraftPackage(checked.plan, checked.plan.stage("generate"), checked.tokenizers),
            load_graphs(checked.plan, OrtBackend(), LoadOptions(), resources),
            LoadOptions(),
            claim,
            greedy,
            context=256,
            width=None,
            resources=resources,
        )
        assert drafts(model, sequence([20, 21])) == [package.expected([20, 21], 4)]
        assert model._pool.num_pages * model._pool.page_bytes <= claim.live
    assert _process_budget().claimed == before
    assert model._pool.usage().resident_bytes is None
