"""``python -m genai_pipeline`` is the command ``genai-pipeline``."""

from __future__ import annotations

import sys

from genai_pipeline.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
