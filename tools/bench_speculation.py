"""What drafts bring: tokens/s with and without, on a text that is copied and on prose, batch 1, greedy.

    python tools/bench_speculation.py PACKAGE [--draft lookup] [--tokens 160] [--rounds 5]

Each contestant is a pipeline in a process of its own, and they take turns, so that a ratio compares neighbours in time.
``--draft`` is what ``gp.load`` takes. Prints the median ratio per task, and how many drafted tokens were accepted.
Fails when the two give different tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

from genai_pipeline.cli.benching.turns import Child, answer

TEXT = (
    "The old harbour lies at the end of the valley. In the morning the boats come back with herring and mackerel, and "
    "the men carry the baskets up the stone steps to the market. Tom sells his fish at the third table on the left, "
    "beside the woman with the oranges. By noon the square is empty again, and only the cats walk between the tables. "
    "In the evening Tom repairs his nets under the lamp and listens to the wind."
)
TASKS = {
    "edit": f"Edit this text: replace the name Tom by Anna. Give the whole text.\n\n{TEXT}",
    "prose": "Write a short story about a lighthouse keeper.",
    "essay": "What makes a good leader? Write three paragraphs.",
}
WANTED = {"edit": 1.8, "prose": 0.95, "essay": 0.95}


def contestant(package: str, draft: str, tokens: int) -> Callable[[Any], dict[str, Any]]:
    """Answers the name of a task with tokens, the seconds of its decode steps, and counts of drafts."""
    import genai_pipeline as gp

    pipe = gp.load(package, draft=draft, prefix_cache=False)

    def run(task: Any) -> dict[str, Any]:
        result = pipe.generate(TASKS[task], max_new_tokens=tokens, temperature=0)
        usage = result.usage
        return {
            "tokens": list(result.tokens),
            "speed": (usage.completion_tokens - 1) / (result.timings.decode or 1),
            "drafted": usage.drafted_tokens or 0,
            "accepted": usage.accepted_tokens or 0,
        }

    for task in TASKS:
        run(task)  # warm up: memory, and what there is to learn about costs
    return run


def main() -> int:
    """Interleave the two and print medians; 1 when a ratio is below what is wanted or tokens differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package")
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve")
    arguments = parser.parse_args()
    if arguments.serve:
        answer(contestant(arguments.package, arguments.serve, arguments.tokens))
        return 0
    shared = [__file__, arguments.package, "--tokens", str(arguments.tokens), "--serve"]
    plain, drafting = Child("off", [*shared, "off"]), Child(arguments.draft, [*shared, arguments.draft])
    failed = False
    for task, wanted in WANTED.items():
        pairs = [(plain.ask(task), drafting.ask(task)) for _ in range(arguments.rounds)]
        ratios = [other["speed"] / one["speed"] for one, other in pairs]
        ratio, last = statistics.median(ratios), pairs[-1][1]
        same = all(one["tokens"] == other["tokens"] for one, other in pairs)
        failed |= ratio < wanted or not same
        print(
            f"{task:6s} {ratio:5.2f} times the tokens/s (wanted {wanted}; {' '.join(f'{r:.2f}' for r in ratios)}), "
            f"plain {statistics.median(one['speed'] for one, _ in pairs):.1f} tokens/s, "
            f"{last['accepted']} of {last['drafted']} drafts accepted in {len(last['tokens'])} tokens, "
            f"tokens {'equal' if same else 'DIFFER'}"
        )
    for child in (plain, drafting):
        child.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
