"""Checks that ``genai-pipeline --help`` stays light: it must import none of the libraries that cost start-up time.

Usage: python tools/import_budget.py [ARGUMENT...] (default: --help); exits with 1 and names what was imported too soon.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

HEAVY = (
    "gguf",
    "huggingface_hub",
    "jinja2",
    "jsonschema",
    "librosa",
    "llguidance",
    "networkx",
    "numpy",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "prometheus_client",
    "prompt_toolkit",
    "soundfile",
    "soxr",
    "starlette",
    "tokenizers",
    "transformers",
    "uvicorn",
    "yaml",
)

_PROBE = """
import sys
from genai_pipeline.cli.entry import main
sys.argv = ["genai-pipeline", *sys.argv[1:]]
status = main()
print("\\n".join(["", "status", str(status), *(name for name in sys.modules if "." not in name)]), file=sys.stderr)
"""


def imported(arguments: Sequence[str]) -> set[str]:
    """The top-level modules that the command with these arguments imports, in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", _PROBE, *arguments], capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    if "status" not in lines or lines[lines.index("status") + 1] != "0":
        raise SystemExit(f"genai-pipeline {' '.join(arguments)} failed:\n{done.stderr}")
    return set(lines[lines.index("status") + 2 :])


def main(arguments: Sequence[str]) -> int:
    """Run the command and compare what it imported with the list of heavy libraries."""
    arguments = arguments or ["--help"]
    heavy = sorted(imported(arguments) & set(HEAVY))
    command = f"genai-pipeline {' '.join(arguments)}"
    print(f"{command} imports {', '.join(heavy)}" if heavy else f"{command} imports no heavy library")
    return 1 if heavy else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
