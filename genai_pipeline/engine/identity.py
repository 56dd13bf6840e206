"""Which package a saved state belongs to: its name and a digest of its metadata and graphs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from genai_pipeline.graph.external_data import scan_external_data
from genai_pipeline.graph.plan import ExecutionPlan

WHOLE = 16 << 20  # files up to this size are read whole
SAMPLES = 64
SAMPLE_BYTES = 4096


def package_identity(plan: ExecutionPlan) -> dict[str, str]:
    """Name and digest. Of large files of weights the size and evenly spread samples count, not every byte."""
    digest = hashlib.sha256(plan.package.file.read_bytes())
    for component in sorted(plan.components.values(), key=lambda component: component.spec.name):
        root = component.spec.root or plan.package.root
        for file in filter(None, (component.model, component.model_later)):
            model = root / file
            weights = scan_external_data(model, root).files
            for name, path in (file, model), *sorted(weights.items()):
                digest.update(name.encode())
                _add_file(digest, path)
    return {"package": plan.package.name, "digest": digest.hexdigest()}


def _add_file(digest: hashlib._Hash, path: Path) -> None:
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        if size <= WHOLE:
            digest.update(file.read())
            return
        for sample in range(SAMPLES):
            file.seek(sample * (size - SAMPLE_BYTES) // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
