"""Damaged files: cut anywhere, bytes changed, headers that lie. Each is read or refused, in little time and memory."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

FORMATS = [
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("WAV", "IMA_ADPCM"),
    ("RF64", "PCM_16"),
    ("FLAC", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]
Encode = Callable[..., bytes]
MOST_MEMORY = 400 << 20  # bytes of address space beyond what is in use, for whatever a header says

# Decodes every file of a folder with address space and processor time limited, and says what came of each.
CHILD = """
import json, resource, sys
from pathlib import Path
import numpy, soundfile, soxr
from genai_pipeline.errors import MediaError
from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.problems import Location

at = Location("test")
steps = (ProgramStep(at, "decode", {"max_seconds": 60}), ProgramStep(at, "mono", {}),
         ProgramStep(at, "resample", {"rate": 16000}))
program = Program.of(ProgramSpec(at, "test", steps), "audio")
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
found = {}
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        found[file.name] = program.run(file, {}, param="audio")["seconds"]
    except MediaError as error:
        found[file.name] = error.message
print(json.dumps(found))
"""


def _outcomes(files: dict[str, bytes], folder: Path) -> dict[str, Any]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    child = [sys.executable, "-c", CHILD, str(folder), str(MOST_MEMORY)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.keys() == files.keys()
    return found


@pytest.mark.parametrize(("kind", "subtype"), FORMATS)
def test_changed_and_cut_files(kind: str, subtype: str, encode: Encode, noise: np.ndarray, tmp_path: Path) -> None:
    whole = encode(noise[:16000], 16000, kind, subtype)
    random = np.random.default_rng(2024)
    files = {}
    for number in range(120):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[random.integers(len(data)) :]
        else:
            reach = min(len(data), 200) if number % 3 == 1 else len(data)
            for place in random.integers(reach, size=random.integers(1, 20)):
                data[place] = random.integers(256)
        files[f"{number:03}"] = bytes(data)
    outcomes = _outcomes(files, tmp_path)
    for name, outcome in outcomes.items():
        if isinstance(outcome, float):
            assert 0 < outcome <= 60, name
        else:
            assert outcome.startswith("audio "), outcome
    assert any(isinstance(outcome, str) for outcome in outcomes.values())


@pytest.mark.parametrize(("kind", "subtype"), [*FORMATS[:5], FORMATS[7]])
def test_a_file_cut_anywhere_is_refused(
    kind: str, subtype: str, encode: Encode, noise: np.ndarray, make_program: Callable[[Any], Program]
) -> None:
    whole = encode(noise, 16000, kind, subtype)
    program = make_program("[{decode: {}}]")
    for share in (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9):
        with pytest.raises(
            MediaError, match=r"audio (is cut short|is a damaged|ends within|is in no format|has no|is empty)"
        ):
            program.run(whole[: int(len(whole) * share)], {}, param="audio")


def _wav(*, channels: int = 1, rate: int = 16000, bits: int = 16, size: int | None = None, data: bytes = b"") -> bytes:
    align = channels * bits // 8
    layout = struct.pack("<HHIIHH", 1, channels % 65536, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    body = b"WAVEfmt " + struct.pack("<I", 16) + layout + b"data"
    body += struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _flac_with(flac: bytes, *, samples: int | None = None, rate: int | None = None) -> bytes:
    """A FLAC file whose header tells another number of samples or another rate."""
    data = bytearray(flac)
    fields = int.from_bytes(data[18:26], "big")  # 20 bits of rate, 3 of channels, 5 of bits, 36 of samples
    if samples is not None:
        fields = fields >> 36 << 36 | samples
    if rate is not None:
        fields = fields & (1 << 44) - 1 | rate << 44
    data[18:26] = fields.to_bytes(8, "big")
    return bytes(data)


def test_headers_that_lie(encode: Encode, noise: np.ndarray, tmp_path: Path) -> None:
    pcm = (noise[:8000] * 32767).astype("<i2").tobytes()
    flac = encode(noise, kind="FLAC")
    mp3 = bytearray(encode(noise, 16000, "MP3", "MPEG_LAYER_III"))
    at = mp3.index(b"Info" if b"Info" in mp3 else b"Xing") + 8
    mp3[at : at + 4] = (10**6).to_bytes(4, "big")
    files = {
        "flac-samples": _flac_with(flac, samples=(1 << 36) - 1),
        "flac-a-minute": _flac_with(flac, samples=16000 * 60),
        "flac-rate": _flac_with(flac, rate=655350),
        "flac-rate-0": _flac_with(flac, rate=0),
        "mp3-frames": bytes(mp3),
        "wav-2-gib": _wav(data=pcm, size=0x7FFE0000),
        "wav-twice": _wav(data=pcm, size=2 * len(pcm)),
        "wav-rate-0": _wav(data=pcm, rate=0),
        "wav-rate-1": _wav(data=pcm, rate=1),
        "wav-rate-4e9": _wav(data=pcm, rate=0xFFFFFFFF),
        "wav-channels-0": _wav(data=pcm, channels=0),
        "wav-channels-1000": _wav(data=pcm, channels=1000),
        "wav-channels-65535": _wav(data=pcm, channels=65535),
        "wav-bits-0": _wav(data=pcm, bits=0),
        "wav-bits-7": _wav(data=pcm, bits=7),
        "wav-nothing": _wav(),
        "wav-header": _wav(data=pcm)[:44],
        "wav-long": _wav(data=bytes(2 * 16000 * 61)),
        "wav-chunk": b"RIFF\xff\xff\xff\xffWAVE" + b"junk" + struct.pack("<I", 0xFFFFFFF0) + pcm,
        "wav-chunks": b"RIFF\xff\xff\xff\xffWAVE" + b"junk\0\0\0\0" * 200_000,
        "ogg-magic": b"OggS" + bytes(5000),
        "ogg-magics": b"OggS" * 100_000,
        "flac-magic": b"fLaC" + b"\xff" * 5000,
        "mp3-sync": b"\xff\xfb" * 200_000,
        "mp3-ones": b"\xff" * 2_000_000,
        "mp3-tag": b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(5000),
    }
    outcomes = _outcomes(files, tmp_path)
    # A rate that is true of nothing can still be read, and seven bits fill a byte.
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, float)} == {"flac-rate", "wav-bits-7"}
    assert "is 4294967.3 s long" in outcomes["flac-samples"]
    assert "is cut short: 16000 of 32000 bytes" in outcomes["wav-twice"]
    assert "sample rate of 1 Hz" in outcomes["wav-rate-1"]
    assert "61.0 s long, and at most 60 s" in outcomes["wav-long"]
    assert "1000 channels" in outcomes["wav-channels-1000"]


def test_a_bomb_of_silence(encode: Encode, tmp_path: Path) -> None:
    """Long silence takes few bytes in a file, and is refused by the header alone."""
    silence = np.zeros(16000 * 60 * 10, np.int16)
    for kind, subtype in (("FLAC", "PCM_16"), ("OGG", "VORBIS")):
        data = encode(silence, 16000, kind, subtype)
        (outcome,) = _outcomes({kind: data}, _folder(tmp_path / kind)).values()
        assert outcome == "audio is 600.0 s long, and at most 60 s are taken"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
