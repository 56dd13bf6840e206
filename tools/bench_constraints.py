"""What a constraint costs: seconds per token of a constrained reply over those of a free one, batch 1 and 8, greedy.

    python tools/bench_constraints.py PACKAGE [--tokens 96] [--rounds 7]

Both kinds of reply come from one pipeline and take turns. The constraint is a JSON Schema with free text
in it, and no token is forced without a run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import genai_pipeline as gp

SCHEMA = {
    "type": "object",
    "properties": {"story": {"type": "string", "minLength": 600}, "moral": {"type": "string"}},
    "required": ["story", "moral"],
    "additionalProperties": False,
}
PROMPT = "Tell a long story about a lighthouse keeper."
CONSTRAINED = {"response_format": {"type": "json_schema", "json_schema": {"name": "tale", "schema": SCHEMA}}}
# Probabilities are wanted of every token, so that none is forced: both kinds of reply then make one run per token.
BOTH: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "logprobs": True, "logprobs_of": "processed"}


def seconds_per_token(pipe: gp.Pipeline, rows: int, tokens: int, **form: Any) -> float:
    """Of ``rows`` requests at once, from the first token of the last to the end."""
    streams = [pipe.stream(PROMPT, max_new_tokens=tokens, **BOTH, **form) for _ in range(rows)]
    for stream in streams:
        next(stream)
    begin = time.perf_counter()
    count = sum(event.token is not None for stream in streams for event in stream)
    return (time.perf_counter() - begin) / count * rows


def main() -> None:
    """Print the ratio for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with gp.load(given.package) as pipe:
        for rows in (1, 8):
            seconds_per_token(pipe, rows, 8, **CONSTRAINED)
            pairs = [
                (
                    seconds_per_token(pipe, rows, given.tokens),
                    seconds_per_token(pipe, rows, given.tokens, **CONSTRAINED),
                )
                for _ in range(given.rounds)
            ]
            ratios = [bound / free for free, bound in pairs]
            shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
            step = 1000 * statistics.median(free for free, _ in pairs)
            print(f"batch {rows}: {statistics.median(ratios):.3f} of a free token (of {shown}), {step:.1f} ms free")


if __name__ == "__main__":
    main()
