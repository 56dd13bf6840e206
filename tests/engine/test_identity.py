"""The identity of a package follows the files that its graphs name, and no others."""

from __future__ import annotations

from pathlib import Path

import genai_pipeline as gp
from genai_pipeline.engine.identity import package_identity
from genai_pipeline.graph.external_data import scan_external_data
from genai_pipeline.testing import write_package


def identity(path: Path) -> dict[str, str]:
    spec, _ = gp.validate(path)
    assert spec is not None
    return package_identity(gp.compile(spec))


def test_weights_count_under_whatever_name_and_other_files_do_not(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package", "kv", external_data=True)
    before = identity(package.path)
    (model,) = package.path.rglob("*.onnx")
    (weights,) = scan_external_data(model, package.path).files.values()
    (model.parent / f"{model.name}.other_data").write_bytes(b"not of this package")
    assert identity(package.path) == before
    content = bytearray(weights.read_bytes())
    content[0] ^= 1
    weights.unlink()
    weights.write_bytes(content)
    assert identity(package.path) != before
