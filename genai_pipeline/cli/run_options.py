"""The options of ``run``: what each is called, and what its help says."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Package = Annotated[str, typer.Argument(help="A folder, a metadata file, or a name from 'list'.")]
Prompt = Annotated[
    str | None,
    typer.Argument(help="The prompt; '-' reads it from stdin (default: what the package declares, if it does)."),
]
System = Annotated[str | None, typer.Option(help="A system message before the prompt.")]
Raw = Annotated[bool, typer.Option("--raw", help="Send the prompt as it is, without chat template.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of streaming.")]
Stats = Annotated[bool, typer.Option("--stats", help="Token counts and timings on stderr at the end.")]
MaxNewTokens = Annotated[int | None, typer.Option(help="At most this many (default: up to the context).")]
MinNewTokens = Annotated[int | None, typer.Option(help="No end token before this many.")]
Temperature = Annotated[float | None, typer.Option(help="0 takes the likeliest token.")]
TopK = Annotated[int | None, typer.Option(help="Choose among the k likeliest; 0: all.")]
TopP = Annotated[float | None, typer.Option(help="Choose among the likeliest that make up this share.")]
MinP = Annotated[float | None, typer.Option(help="Drop tokens below this share of the likeliest.")]
Seed = Annotated[int | None, typer.Option(help="Same seed, same answer.")]
Stop = Annotated[list[str] | None, typer.Option(help="End at this text (repeatable); it is not printed.")]
StopTokenId = Annotated[list[int] | None, typer.Option(help="End at this token (repeatable).")]
IgnoreEos = Annotated[bool | None, typer.Option("--ignore-eos", help="Go on after end tokens.")]
Choices = Annotated[
    int | None, typer.Option("--n", help="Samples of the prompt; several are printed when all are done.")
]
Parameter = Annotated[list[str] | None, typer.Option(metavar="K=V", help="A parameter the package declares.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds after which the request is given up.")]
Priority = Annotated[Literal["low", "normal", "high"] | None, typer.Option(help="Among requests that wait.")]
Precision = Annotated[str | None, typer.Option(help="Of a known package: the variant to use.")]
Threads = Annotated[int | None, typer.Option(help="Threads of the runtime (default: what the machine gives).")]
ContextLength = Annotated[int | None, typer.Option(help="Lower the package's context to this.")]
PrefillChunk = Annotated[int | None, typer.Option(help="Prompt tokens per prefill run.")]
Memory = Annotated[
    str | None, typer.Option(help="For caches: bytes, a size (2GiB), a share of what is free (0.5), or auto.")
]
NoPrefixCache = Annotated[
    bool | None, typer.Option("--no-prefix-cache", help="Compute what prompts share each time anew.")
]
Draft = Annotated[
    str | None, typer.Option(help="Guess ahead: auto (what the package says), off, lookup, or a smaller package.")
]
Provider = Annotated[list[str] | None, typer.Option(help="cpu, cuda, ... (repeatable, first choice first).")]
Profile = Annotated[str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto there.")]
