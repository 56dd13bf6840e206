"""What a sound may be: rates, channels, duration, and the memory it takes when decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genai_pipeline.errors import MediaError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz
MOST_CHANNELS: Final = 64
_DECODED_BYTES: Final = 2 << 30
_SAMPLE_BYTES: Final = 4  # float32


@dataclass(frozen=True, slots=True)
class SoundLimits:
    """The limits of a program: the longest sound, and the bytes of the file it is in."""

    seconds: float
    file_bytes: int

    def check(self, what: str, rate: int, channels: int, frames: int | None) -> None:
        """Refuse a sound by its header; ``frames`` None: the header does not tell. Raises MediaError."""
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            hint = f"rates from {LOWEST_RATE} to {HIGHEST_RATE} Hz are read"
            raise MediaError(f"{what} has a sample rate of {rate} Hz", param=what, hint=hint)
        if not 1 <= channels <= MOST_CHANNELS:
            raise MediaError(f"{what} has {channels} channels", param=what, hint=f"1 to {MOST_CHANNELS} are read")
        if frames is None:
            return
        if frames / rate > self.seconds:
            message = f"{what} is {frames / rate:.1f} s long, and at most {self.seconds:g} s are taken"
            raise MediaError(message, param=what, hint="cut it; the limit is max_seconds of the program's step decode")
        if frames * channels * _SAMPLE_BYTES > _DECODED_BYTES:
            megabytes = frames * channels * _SAMPLE_BYTES >> 20
            message = f"{what} would take {megabytes} MiB decoded, and at most {_DECODED_BYTES >> 20} are taken"
            raise MediaError(message, param=what, hint="cut it, or give it with fewer channels or a lower rate")
