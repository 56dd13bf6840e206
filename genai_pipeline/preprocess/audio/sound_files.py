"""Decodes WAV, FLAC, OGG and MP3 within limits: the home of soundfile.

The header is read first, and what it promises is checked before a sample is decoded; decoding goes block by block, so
that a header that lies costs neither memory nor time.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import ExtraMissingError, MediaError
from genai_pipeline.preprocess.audio.limits import SoundLimits
from genai_pipeline.preprocess.audio.sound import FloatArray
from genai_pipeline.preprocess.audio.wav_header import read_wav_header

_BLOCK: Final = 1 << 18  # values decoded at once
_UNKNOWN_FRAMES: Final = 1 << 62  # a header without a length
_MP3_SLACK: Final = 2 * 1152  # samples: the encoder's delay may or may not be counted
_READS: Final = "sounds are WAV, FLAC, OGG or MP3 files"


def decode(data: bytes, what: str, limits: SoundLimits) -> tuple[FloatArray, int]:
    """The samples of a file, float32 [channels, n] in -1 to 1, and its sample rate.

    Raises MediaError: another format, damaged, cut short, beyond the limits, or without a sample.
    """
    library = _soundfile()
    kind = _kind(data)
    if kind is None:
        raise MediaError(f"{what} is in no format that can be read", param=what, hint=_READS)
    try:
        with library.SoundFile(_Bytes(data)) as file:
            known = file.frames if file.frames < _UNKNOWN_FRAMES else None
            limits.check(what, file.samplerate, file.channels, known)
            if kind == "WAV":
                _check_wav(data, what)
            samples = _decoded(file, what, limits)
            slack = _MP3_SLACK if kind == "MP3" else 0
            if known is not None and samples.shape[-1] + slack < known:
                there, promised = samples.shape[-1] / file.samplerate, known / file.samplerate
                raise _cut_short(what, f"{there:.3f} s of {promised:.3f} s are there")
            return samples, int(file.samplerate)
    except library.SoundFileError as error:
        raise MediaError(f"{what} is a damaged {kind} file: {_reason(error)}", param=what) from error


class _Bytes(io.BytesIO):
    """Bytes that a decoder reads through callbacks, which may raise nothing: a damaged file asks for any place."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        base = (0, self.tell(), self.getbuffer().nbytes)[whence]
        return super().seek(max(0, base + offset))


def _kind(data: bytes) -> str | None:
    """The format by its first bytes, so that decoders of other formats are never reached."""
    if data[:4] in (b"RIFF", b"RIFX", b"RF64") and data[8:12] == b"WAVE":
        return "WAV"
    if data[:4] == b"fLaC":
        return "FLAC"
    if data[:4] == b"OggS":
        return "OGG"
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0"):
        return "MP3"
    return None


def _check_wav(data: bytes, what: str) -> None:
    """Refuse samples that the header promises and that are not there: the decoder would just give fewer."""
    if data[:4] == b"RIFX":
        return
    stream = io.BytesIO(data)
    promised = read_wav_header(stream.read, what).data_bytes
    there = len(data) - stream.tell()
    if promised is not None and promised > there:
        raise _cut_short(what, f"{there} of {promised} bytes of samples are there")


def _cut_short(what: str, how: str) -> MediaError:
    return MediaError(f"{what} is cut short: {how}", param=what, hint="its header tells more; fetch the file again")


def _decoded(file: Any, what: str, limits: SoundLimits) -> FloatArray:
    blocks = list(_blocks(file, what, limits))
    if not blocks:
        raise MediaError(f"{what} has no samples", param=what)
    return np.concatenate(blocks).T


def _blocks(file: Any, what: str, limits: SoundLimits) -> Iterator[FloatArray]:
    frames = max(1, _BLOCK // file.channels)
    done = 0
    while len(block := file.read(frames, dtype="float32", always_2d=True)):
        done += len(block)
        limits.check(what, file.samplerate, file.channels, done)  # where the header has no length
        if not np.isfinite(block).all():
            raise MediaError(f"{what} has samples that are no finite numbers", param=what)
        yield block


def _reason(error: Exception) -> str:
    """What the decoder says, without the object it read from."""
    said = getattr(error, "error_string", None) or str(error)
    return str(said).removeprefix("Error : ").strip().rstrip(".")


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the library it wraps is not there
        message = "reading sounds needs the library soundfile, which is not installed"
        raise ExtraMissingError(message, hint="pip install 'genai-pipeline[audio]'") from error
    return soundfile
