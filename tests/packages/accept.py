"""Shows what ``validate`` says about folders of the corpus, and writes it down as expected when told to.

    python tests/packages/accept.py [FOLDER...]            shows folders whose problems are not the expected ones
    python tests/packages/accept.py --write FOLDER...      accepts what was shown; read it first

``expected.json`` is a sorted list of {code, path, line}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from conftest import HERE, found

import genai_pipeline


def expected(folder: Path) -> object:
    """What was accepted for a folder."""
    file = folder / "expected.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def main(arguments: list[str]) -> None:
    """Show, and with ``--write`` accept."""
    folders = [Path(name) for name in arguments if name != "--write"]
    for folder in folders or sorted([*(HERE / "invalid").iterdir(), *(HERE / "invalid_several").iterdir()]):
        entries = found(folder)
        if entries == expected(folder):
            continue
        first = (folder / "inference_metadata.yaml").read_bytes().split(b"\n")[0].decode(errors="replace")
        sys.stdout.write(f"{folder.name}: {first}\n")
        for problem in genai_pipeline.validate(folder)[1]:
            hint = f" ({problem.hint})" if problem.hint else ""
            place = f"{problem.severity} {problem.code} {problem.at.line} {problem.at.path}"
            sys.stdout.write(f"    {place}: {problem.message}{hint}\n")
        if "--write" in arguments:
            lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
            (folder / "expected.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
