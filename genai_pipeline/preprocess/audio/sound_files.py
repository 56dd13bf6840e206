"""Decodes WAV, FLAC, OGG and MP3 within limits: the home of soundfile.

The header is read first, and what it promises is checked before a sample is decoded, so that a header that lies costs
neither memory nor time.
"""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import ExtraMissingError, MediaError
from genai_pipeline.preprocess.audio.limits import SoundLimits
from genai_pipeline.preprocess.audio.mp3_length import with_length
from genai_pipeline.preprocess.audio.sound import FloatArray
from genai_pipeline.preprocess.audio.wav_header import read_wav_header

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
        with library.SoundFile(_Bytes(with_length(data) if kind == "MP3" else data)) as file:
            _check_header(file, kind, what, limits)
            if kind == "WAV":
                _check_wav(data, what)
            samples = _decoded(file, what)
            slack = _MP3_SLACK if kind == "MP3" else 0
            if samples.shape[-1] + slack < file.frames:
                there, promised = samples.shape[-1] / file.samplerate, file.frames / file.samplerate
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


def _check_header(file: Any, kind: str, what: str, limits: SoundLimits) -> None:
    known = file.frames < _UNKNOWN_FRAMES
    limits.check(what, file.samplerate, file.channels, file.frames if known else None)
    if not known:
        message = f"{what} is a {kind} stream whose header has no length"
        raise MediaError(message, param=what, hint=f"write it to a {kind} file: whatever wrote it then adds the length")


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


def _decoded(file: Any, what: str) -> FloatArray:
    """All samples, read at once: between two reads the library seeks, which lossy formats do not survive exactly.

    The memory for them is reserved, and used up only as far as there are samples.
    """
    samples: FloatArray = file.read(file.frames, dtype="float32", always_2d=True)
    if not len(samples):
        raise MediaError(f"{what} has no samples that can be read", param=what)
    if not np.isfinite(samples).all():
        raise MediaError(f"{what} has samples that are no finite numbers", param=what)
    return samples.T


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
