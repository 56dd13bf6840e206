"""The entry points of the two console scripts: as little as can be, so that Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> int:
    """Run ``genai-pipeline`` with the arguments of the process; returns the exit code."""
    try:
        _occupy_closed_streams()
        from genai_pipeline.cli.main import run_command

        return run_command(sys.argv[1:])
    except KeyboardInterrupt:
        return INTERRUPTED


def _occupy_closed_streams() -> None:
    """Keep the numbers of closed standard streams from files opened later, which libraries might then write into."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


def validate_package() -> int:
    """Run ``validate-package``, the same as ``genai-pipeline validate``."""
    sys.argv[1:1] = ["validate"]
    return main()
