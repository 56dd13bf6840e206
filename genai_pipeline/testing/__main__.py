"""``python -m genai_pipeline.testing KIND FOLDER``: writes a closed-form package, to try things out without a model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from genai_pipeline.testing.kinds import KINDS
from genai_pipeline.testing.media import write_embedder, write_listener, write_towers, write_vlm
from genai_pipeline.testing.packages import write_package
from genai_pipeline.testing.voices import write_speaker, write_transcriber

WRITERS: dict[str, Callable[[str], object]] = {
    "vlm": write_vlm,
    "listener": write_listener,
    "towers": write_towers,
    "embedder": write_embedder,
    "speaker": write_speaker,
    "transcriber": write_transcriber,
    **{kind: partial(write_package, kind=kind) for kind in KINDS},
}


def main(arguments: list[str]) -> int:
    """Write the package; 2 for wrong usage."""
    if len(arguments) != 2 or arguments[0] not in WRITERS:
        sys.stderr.write(f"usage: python -m genai_pipeline.testing KIND FOLDER\nkinds: {', '.join(WRITERS)}\n")
        return 2
    kind, folder = arguments
    WRITERS[kind](folder)
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
