"""Checkpoint files come back bit by bit or are refused by name."""

from __future__ import annotations

import hashlib
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from genai_pipeline.errors import CheckpointError
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv import checkpoint
from genai_pipeline.kv.checkpoint import read_checkpoint, write_checkpoint
from genai_pipeline.kv.pool import SavedTokens

IDENTITY = {"name": "tiny", "digest": "abc"}
TOKENS = [5, 0, 2**40, 7]
COMPONENTS = {
    "a": [
        StatePlan(
            "in_place",
            (
                StateTensor(0, "k", "pk", "nk", "float32", ("batch", 2, "length", 3)),
                StateTensor(0, "v", "pv", "nv", "bfloat16", ("batch", "length", 5)),
            ),
        ),
        StatePlan("replace", (StateTensor(0, "s", "s", "t", "float16", ("batch", 6)),)),
    ],
    "b/c": [StatePlan("fixed", (StateTensor(0, "x", "x", None, "int8", ("batch", 2, "length")),))],
}


def state(tokens: int = 4) -> SavedTokens:
    rng = np.random.default_rng(1)
    return {
        "a": [
            [rng.random((tokens, 2, 3), np.float32), rng.random((tokens, 5)).astype(ml_dtypes.bfloat16)],
            [rng.random(6).astype(np.float16)],
        ],
        "b/c": [[rng.integers(-9, 9, (2, 11)).astype(np.int8)]],
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "session.ckpt"
    write_checkpoint(file, TOKENS, state(), IDENTITY, {"note": "é"})
    return file


def test_everything_comes_back(path: Path) -> None:
    found = read_checkpoint(path, IDENTITY, COMPONENTS)
    assert (found.tokens, found.num_computed, found.extra) == (tuple(TOKENS), 4, {"note": "é"})
    expected = state()
    assert {name: len(entries) for name, entries in found.saved.items()} == {"a": 2, "b/c": 1}
    for name, entries in expected.items():
        for arrays, wanted in zip(found.saved[name], entries, strict=True):
            for array, want in zip(arrays, wanted, strict=True):
                assert (array.dtype, array.shape, array.tobytes()) == (want.dtype, want.shape, want.tobytes())
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_state_may_cover_fewer_tokens(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", TOKENS, state(3), IDENTITY, {}, num_computed=3)
    assert read_checkpoint(tmp_path / "c", IDENTITY, COMPONENTS).num_computed == 3
    write_checkpoint(tmp_path / "c", [], {}, IDENTITY, {})
    assert read_checkpoint(tmp_path / "c", IDENTITY, {}).tokens == ()


def test_strided_arrays_are_written_as_they_look(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
    write_checkpoint(tmp_path / "c", TOKENS, {"a": [[array, array.T]]}, IDENTITY, {})
    found = read_checkpoint(tmp_path / "c", IDENTITY).saved["a"][0]
    np.testing.assert_array_equal(found[0], array)
    np.testing.assert_array_equal(found[1], array.T)


def test_another_process_reads_the_same(path: Path) -> None:
    code = (
        "import sys, pathlib, hashlib; from genai_pipeline.kv.checkpoint import read_checkpoint;"
        "c = read_checkpoint(pathlib.Path(sys.argv[1]), {'name': 'tiny', 'digest': 'abc'});"
        "print(c.tokens, hashlib.sha256(c.saved['a'][0][1].tobytes()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    expected = hashlib.sha256(state()["a"][0][1].tobytes()).hexdigest()
    assert done.stdout == f"{tuple(TOKENS)} {expected}\n"


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"name": "tiny", "digest": "abd"}, "digest is 'abc' there and 'abd' here"),
        ({"name": "big", "digest": "x"}, "digest is 'abc' there and 'x' here; name is 'tiny' there and 'big' here"),
        ({"name": "tiny"}, "digest is 'abc' there and None here"),
        ({**IDENTITY, "adapter": "poet"}, "adapter is None there and 'poet' here"),
    ],
)
def test_another_identity_is_refused_naming_what_differs(path: Path, identity: dict[str, str], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path, identity)
    assert str(caught.value) == f"{path} belongs to another package: {said}"


def plan_with(**changes: object) -> dict[str, list[StatePlan]]:
    first = COMPONENTS["a"][0].tensors[0]
    tensor = StateTensor(**{name: changes.get(name, getattr(first, name)) for name in StateTensor.__slots__})
    rest = COMPONENTS["a"][0].tensors[1:]
    return {"a": [StatePlan("in_place", (tensor, *rest)), COMPONENTS["a"][1]], "b/c": COMPONENTS["b/c"]}


@pytest.mark.parametrize(
    ("components", "said"),
    [
        (plan_with(shape=("batch", 3, "length", 3)), "'pk' of component 'a' is float32[4, 3, 3], not float32[4, 2, 3]"),
        (plan_with(dtype="float16"), "'pk' of component 'a' is float16[4, 2, 3], not float32[4, 2, 3]"),
        ({"a": COMPONENTS["a"]}, "it has the state of other components"),
        ({"a": COMPONENTS["a"][:1], "b/c": COMPONENTS["b/c"]}, "it has the state of other components"),
        (
            {"a": COMPONENTS["a"], "b/c": [StatePlan("fixed", COMPONENTS["b/c"][0].tensors * 2)]},
            "component 'b/c' has 2 state tensors, not 1",
        ),
        (
            {
                "a": COMPONENTS["a"],
                "b/c": [
                    StatePlan("fixed", (StateTensor(0, "x", "x", None, "int8", ("batch", 3, "length")),)),
                ],
            },
            "'x' of component 'b/c' is int8[3, any], not int8[2, 11]",
        ),
    ],
)
def test_state_that_does_not_fit_is_refused(path: Path, components: dict[str, list[StatePlan]], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path, IDENTITY, components)
    assert str(caught.value) == f"{path} does not fit the package: {said}"


def test_another_format_version_is_refused(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"version":"1"', b'"version":"2"'))
    with pytest.raises(CheckpointError, match=r"has checkpoint format '2'; this version reads '1'"):
        read_checkpoint(path, IDENTITY)


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    save_file({"weight": np.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="is a safetensors file, but not a checkpoint"):
        read_checkpoint(tmp_path / "model.safetensors", IDENTITY)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (_folder, "is not a regular file"),
        (_pipe, "is not a regular file"),
        (_loop, "cannot be read: Too many levels"),
        (lambda path: path.write_bytes(b""), "is damaged: it has 0 bytes"),
        (lambda path: path.write_bytes(b"hello"), "is damaged: it has 5 bytes"),
        (lambda path: path.write_bytes(b"GGUF" + bytes(100)), "its header would have 1179993927"),
        (lambda path: path.write_bytes(struct.pack("<Q", 2**60) + bytes(99)), "header would have 1152921504606846976"),
        (lambda path: path.write_bytes(struct.pack("<Q", 17 * 2**20) + bytes(99)), "header would have 17825792 bytes"),
        (lambda path: path.write_bytes(struct.pack("<Q", 1000) + bytes(99)), "ends after 107 bytes, within its header"),
        (lambda path: path.write_bytes(struct.pack("<Q", 2) + b"[]"), "is damaged"),
        (lambda path: path.write_bytes(struct.pack("<Q", 40000) + b"[" * 40000), "is damaged"),
    ],
)
def test_what_is_no_checkpoint_is_named(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path, IDENTITY)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_damage_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damage") / "c"
    write_checkpoint(path, TOKENS, state(), IDENTITY, {"note": "x"})
    good = path.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(st.sampled_from([good[:at], good + b"x", good[:at] + bytes([good[at] ^ 0x11]) + good[at + 1 :]]))
    path.write_bytes(bad)
    with pytest.raises(CheckpointError):
        read_checkpoint(path, IDENTITY, COMPONENTS)


NONSENSE = ["", "[1", "null", "[]", "-1", "7", '{"a": 3}', "[" * 9000]
FIELDS = ["identity", "extra", "layout", "dtypes", "num_computed"]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in FIELDS for value in NONSENSE])
def test_metadata_that_make_no_sense_are_refused(path: Path, field: str, value: str) -> None:
    """Even under a digest that fits: another program may write such a file."""
    metadata, stored = checkpoint._read(path)
    del metadata["digest"]
    metadata[field] = value
    checkpoint._write_atomically(path, stored, metadata | {"digest": checkpoint._digest(metadata, stored)})
    with pytest.raises(CheckpointError, match="is damaged: its metadata make no sense"):
        read_checkpoint(path, IDENTITY, COMPONENTS)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written: No such file"):
        write_checkpoint(tmp_path / "none" / "c", TOKENS, state(), IDENTITY, {})
    with pytest.raises(CheckpointError, match="cannot be written: Is a directory"):
        write_checkpoint(tmp_path, TOKENS, state(), IDENTITY, {})
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot be written"):
            write_checkpoint(path, TOKENS * 99, state(396), IDENTITY, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
