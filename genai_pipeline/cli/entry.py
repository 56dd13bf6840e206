"""The entry points of the two console scripts: as little as can be, so that Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> int:
    """Run ``genai-pipeline`` with the arguments of the process; returns the exit code."""
    try:
        from genai_pipeline.cli.main import run_command

        return run_command(sys.argv[1:])
    except KeyboardInterrupt:
        return INTERRUPTED


def validate_package() -> int:
    """Run ``validate-package``, the same as ``genai-pipeline validate``."""
    sys.argv[1:1] = ["validate"]
    return main()
