"""Pictures and sounds under load: transcriptions together, decode rows beside an encoder, the first sound of a voice.

    python tools/bench_media.py SOUND.wav [--rounds 3]

Whisper transcribes the sound eight times one after another and eight times at once; decoding rows of SmolLM2 in the same
process keep their pace while a window of 30 s is encoded beside them; the voice says a sentence of about ten seconds.
Results of encoders are not kept here. Prints ratios, medians of rounds in one run.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

import genai_pipeline as gp

TOGETHER = 8
SENTENCE = (
    "It was a bright cold day in April, and the clocks were striking thirteen, while the wind blew dust along the "
    "street, and nobody said a word about it until the evening came."
)


def together(pipe: Any, sound: str) -> float:
    """Time of eight transcriptions at once over that of one after another."""
    begin = time.perf_counter()
    for _ in range(TOGETHER):
        pipe.transcribe(sound)
    alone, begin = time.perf_counter() - begin, time.perf_counter()
    threads = [threading.Thread(target=pipe.transcribe, args=(sound,)) for _ in range(TOGETHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - begin) / alone


def gap(pipe: Any, sound: Any, rows: int = 8) -> float:
    """Largest gap between tokens of decoding windows while another window is encoded, over the undisturbed median."""
    moments: list[float] = []
    loop = next(iter(pipe._assembly.engine._loops.values()))
    run = loop.run

    def timed(kind: str, batch: Any) -> Any:
        logits = run(kind, batch)
        if kind == "decode":
            moments.append(time.perf_counter())
        return logits

    loop.run = timed
    streams = [pipe.stream_run({"audio": sound}, ignore_eos=True, max_new_tokens=120) for _ in range(rows)]
    while len(moments) < 30:
        time.sleep(0.01)
    start = time.perf_counter()
    other = pipe.stream_run(
        {"audio": (np.random.default_rng(len(moments)).normal(0, 0.1, 480_000), 16_000)}, max_new_tokens=1
    )
    for _ in other:
        pass
    stop = time.perf_counter()
    for stream in streams:
        for _ in stream:
            pass
    del loop.run
    gaps = [(b - a, a) for a, b in itertools.pairwise(moments)]
    calm = median(size for size, at in gaps if at < start)
    return max(size for size, at in gaps if start - calm <= at <= stop) / calm


def first_sound(pipe: Any) -> float:
    """Time to the first piece of a spoken sentence over that of all of it."""
    begin = time.perf_counter()
    pieces = pipe.stream_speech(SENTENCE, seed=1)
    seconds = next(pieces).seconds
    first = time.perf_counter() - begin
    seconds += sum(piece.seconds for piece in pieces)
    print(f"  {seconds:.1f} s of sound in {time.perf_counter() - begin:.1f} s, first after {first:.2f} s", flush=True)
    return first / (time.perf_counter() - begin)


def shown(what: str, ratios: Sequence[float], wanted: str) -> None:
    """One line of the report."""
    print(
        f"{what:70} {median(ratios):6.3f}   wanted {wanted}   (of {' '.join(f'{r:.3f}' for r in ratios)})", flush=True
    )


def main() -> None:
    """Run rounds and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sound")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with gp.load("whisper-tiny.en", encoder_cache=0) as pipe:
        pipe.transcribe(given.sound)
        shown(
            "eight transcriptions at once over one after another",
            [together(pipe, given.sound) for _ in range(given.rounds)],
            "<= 0.85",
        )
        shown(
            "largest gap of decode rows while 30 s of sound are encoded, over the median",
            [gap(pipe, given.sound) for _ in range(given.rounds)],
            "<= 4",
        )
    with gp.load("piper-joe") as pipe:
        pipe.speak("one")
        shown("first sound of a sentence over all of it", [first_sound(pipe) for _ in range(given.rounds)], "<= 0.333")


if __name__ == "__main__":
    main()
