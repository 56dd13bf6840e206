"""Prepares files under hard limits of memory and processor time: a process of its own, see test_broken_files.py.

Arguments: a pickled list of (name, bytes), and where to write the outcomes as JSON.
"""

from __future__ import annotations

import json
import pickle
import re
import resource
import sys
import warnings
from pathlib import Path

from genai_pipeline.errors import MediaError
from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.image import pillow
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.problems import Location

MEMORY = 700 * 2**20  # bytes beyond what the process has after its imports
SECONDS = 120  # of processor time for all files


def main(corpus: Path, outcomes: Path) -> None:
    at = Location("program.yaml")
    steps = (
        ProgramStep(at, "decode", {}),
        ProgramStep(at, "resize", {"size": [64, 64]}),
        ProgramStep(at, "rescale", {}),
    )
    program = Program.of(ProgramSpec(at, "program", steps), "image")
    assert "JPEG" in pillow.Image.OPEN
    warnings.simplefilter("ignore")  # Pillow warns of odd metadata
    used = int(re.search(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    found = []
    for name, data in pickle.loads(corpus.read_bytes()):
        try:
            outcome = str(program.run(data, {}, param="images")["pixels"].shape)
        except MediaError as error:
            outcome = f"refused: {error.message}" if error.param == "images" else "refused without a name"
        found.append((name, outcome))
    outcomes.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
