"""The options of ``run`` and ``score``: what each is called, and what its help says."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from genai_pipeline.cli.option_groups import OptionGroup, off_switch, option, switch

Package = Annotated[str, typer.Argument(help="A folder, a metadata file, or a name from 'list'.")]
Prompt = Annotated[
    str | None,
    typer.Argument(help="The prompt; '-' reads it from stdin (default: what the package declares, if it does)."),
]
Out = Annotated[str | None, typer.Option("--out", "-o", help="Where a sound (.wav) or a picture (.png, .jpg) goes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, with all fields, instead of streaming.")]
Stats = Annotated[bool, typer.Option("--stats", help="Token counts and timings on stderr at the end.")]

_ID: Final = "TOKEN"
_VALUE: Final = "TEXT|@FILE"
_JSON: Final = "JSON|@FILE"


PROMPT: Final = OptionGroup(
    "Prompt",
    {
        "system": option(str, help="A system message before the prompt."),
        "raw": switch("--raw", "Send the prompt as it is, without chat template."),
        "suffix": option(str, help="Fill in what stands between the prompt and this text."),
        "session": option(str, metavar="FILE", help="Go on with this conversation (a new file: begin one); save it."),
        "chat_template_kwargs": option(list[str], metavar="K=V", help="A variable of the chat template (repeatable)."),
        "parameters": option(list[str], "--param", metavar="K=V", help="A parameter the package declares."),
        "images": option(list[str], "--image", metavar="FILE", help="A picture (repeatable, in order)."),
        "audio": option(list[str], "--audio", metavar="FILE", help="A sound (repeatable, in order)."),
    },
)

LENGTH: Final = OptionGroup(
    "Length and end of the answer",
    {
        "max_new_tokens": option(int, help="At most this many (default: up to the context)."),
        "min_new_tokens": option(int, help="No end token before this many."),
        "stop": option(list[str], help="End at this text (repeatable); it is not printed."),
        "stop_token_ids": option(list[int], "--stop-token-id", metavar=_ID, help="End at this token (repeatable)."),
        "ignore_eos": switch("--ignore-eos", "Go on after end tokens."),
        "n": option(int, "--n", help="Samples of the prompt; several are printed when all are done."),
    },
)

CHOOSING: Final = OptionGroup(
    "How tokens are chosen",
    {
        "temperature": option(float, help="0 takes the likeliest token."),
        "seed": option(int, help="Same seed, same answer."),
        "top_k": option(int, help="Among the k likeliest; 0: all."),
        "top_p": option(float, help="Among the likeliest that make up this share."),
        "min_p": option(float, help="Drop tokens below this share of the likeliest."),
        "typical_p": option(float, help="Among the most typical that make up this share."),
        "top_a": option(float, help="Drop tokens below this times the square of the likeliest."),
        "xtc_probability": option(float, help="How often all likely tokens but the least of them are dropped."),
        "xtc_threshold": option(float, help="From where on XTC calls a token likely (0.1)."),
        "mirostat": option(int, help="2: hold the surprise steady, in place of the filters above; 0: off."),
        "mirostat_tau": option(float, help="Its aim, in bits (5)."),
        "mirostat_eta": option(float, help="How fast it goes there (0.1)."),
        "num_beams": option(int, help="Search with so many beams, where the package declares it; 1: off."),
        "length_penalty": option(float, help="Above 0, a search favours long answers (1)."),
        "early_stopping": switch("--early-stopping", "End a search when so many answers have ended."),
    },
)

PENALTIES: Final = OptionGroup(
    "Penalties, bias, bans",
    {
        "repetition_penalty": option(float, help="Divide what occurred by this; 1: off."),
        "frequency_penalty": option(float, help="Subtract this for each time the answer has the token."),
        "presence_penalty": option(float, help="Subtract this once the answer has the token."),
        "no_repeat_ngram_size": option(int, help="No n tokens in a row twice; 0: off."),
        "dry_multiplier": option(float, help="Penalise what would go on repeating a passage; 0: off."),
        "dry_base": option(float, help="How fast that grows with the passage (1.75)."),
        "dry_allowed_length": option(int, help="Passages shorter than this are free (2)."),
        "dry_range": option(int, help="How many tokens back it looks; 0: all."),
        "dry_sequence_breakers": option(
            list[str], "--dry-sequence-breaker", help="Passages end at tokens with this text (repeatable)."
        ),
        "dry_sequence_breaker_ids": option(
            list[int], "--dry-sequence-breaker-id", metavar=_ID, help="Passages end at this token (repeatable)."
        ),
        "logit_bias": option(list[str], metavar="TOKEN=VALUE", help="Add -100 to 100 to a token (repeatable)."),
        "banned_token_ids": option(list[int], "--banned-token-id", metavar=_ID, help="Never this one (repeatable)."),
        "forced_token_ids": option(
            list[int], "--forced-token-id", metavar=_ID, help="The answer begins with it (repeatable, in order)."
        ),
    },
)

LOGPROBS: Final = OptionGroup(
    "Log probabilities (they need --json)",
    {
        "logprobs": switch("--logprobs", "Of each token of the answer."),
        "top_logprobs": option(int, help="And of so many of the likeliest at its place."),
        "logprobs_of": option(
            Literal["model", "processed"], help="Before all options (model), or what was drawn from."
        ),
        "prompt_logprobs": option(int, help="Of the prompt's tokens, with so many alternatives each."),
    },
)

FORM: Final = OptionGroup(
    "Form of the answer (one of these)",
    {
        "response_format": option(str, "--json-schema", metavar=_JSON, help="JSON that fits a JSON Schema."),
        "json_object": switch("--json-object", "Any JSON object."),
        "regex": option(str, help="A text that the expression matches as a whole."),
        "grammar": option(str, metavar=_VALUE, help="A text of a Lark grammar, from its rule 'start'."),
        "choices": option(list[str], "--choice", help="One of these texts (repeatable)."),
    },
)

TOOLS: Final = OptionGroup(
    "Tools and reasoning",
    {
        "tools": option(str, metavar=_JSON, help="Functions the model may call: a list in OpenAI's shape."),
        "tool_choice": option(str, metavar="NAME", help="auto, none, required, or the tool to call."),
        "parallel_tool_calls": off_switch("--no-parallel-tool-calls", "One call at most."),
        "reasoning_effort": option(
            Literal["none", "low", "medium", "high"], metavar="LEVEL", help="none, low, medium, high: thinking first."
        ),
        "reasoning_budget": option(int, help="Most tokens of reasoning."),
    },
)

QUEUE: Final = OptionGroup(
    "Waiting",
    {
        "timeout": option(float, help="Seconds after which the request is given up."),
        "priority": option(Literal["low", "normal", "high"], help="Among requests that wait."),
    },
)

LOADING: Final = OptionGroup(
    "Loading and running",
    {
        "precision": option(str, help="Of a known package: the variant to use."),
        "backend": option(str, metavar="NAME", help="auto, ort (ONNX Runtime), nxrt, or another that is installed."),
        "providers": option(
            list[str], "--provider", help="cpu, cuda, ..., first choice first; COMPONENT=cuda,cpu for one component."
        ),
        "threads": option(int, help="Threads of the runtime (default: what the machine gives)."),
        "context_length": option(int, help="Lower the package's context to this."),
        "prefill_chunk": option(int, help="Prompt tokens per prefill run, at least 3."),
        "memory": option(str, help="For caches: bytes, a size (2GiB), a share of what is free (0.5), or auto."),
        "prefix_cache": off_switch("--no-prefix-cache", "Compute what prompts share each time anew."),
        "draft": option(str, help="Guess ahead: auto (what the package says), off, lookup, or a smaller package."),
        "profile": option(str, metavar="FILE", help="Write a trace for Perfetto there."),
    },
)

SPECULATION: Final = OptionGroup(
    LOADING.title, {"speculate": off_switch("--no-speculate", "Do not guess ahead in this request.")}
)

SCORE_LOADING: Final = LOADING.only(
    "precision", "backend", "providers", "threads", "context_length", "prefill_chunk", "memory", "profile"
)

SELECTION: Final = LOADING.only("backend", "providers")

TASK_LOADING: Final = LOADING.only("precision", "backend", "providers", "threads", "memory", "profile")

SAMPLING: Final = (LENGTH, CHOOSING, PENALTIES, LOGPROBS, SPECULATION)  # what becomes options of generation
