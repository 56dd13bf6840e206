"""Pictures and sounds under load: transcriptions together, decode rows beside an encoder, the first sound of a voice.

    python tools/bench_media.py SOUND.wav [--rounds 3]

Whisper transcribes the sound eight times one after another and eight times at once; rows that decode keep their pace
while a window of 30 s is encoded beside them; the voice says a sentence of about ten seconds.
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
    """Largest gap between decode runs of eight rows while another window is encoded, over their median before."""
    engine = pipe._assembly.engine
    (loop,) = engine._loops.values()
    (encoder,) = engine._side_lane._stages.values()
    run, encode = loop.run, encoder.run
    decoded: list[float] = []
    encoded: list[tuple[float, float]] = []

    def timed_run(kind: str, batch: Any) -> Any:
        logits = run(kind, batch)
        if kind == "decode" and batch.size >= rows - 1:  # the first may have ended before the last one came
            decoded.append(time.perf_counter())
        return logits

    def timed_encode(jobs: Any) -> Any:
        begin = time.perf_counter()
        outputs = encode(jobs)
        encoded.append((begin, time.perf_counter()))
        return outputs

    loop.run, encoder.run = timed_run, timed_encode
    try:
        noise = np.random.default_rng(rows).normal(0, 0.1, 480_000).astype(np.float32)
        streams = [pipe.stream_run({"audio": sound}, ignore_eos=True, max_new_tokens=220) for _ in range(rows)]
        while len(decoded) < 15:
            time.sleep(0.01)
        with pipe.stream_run({"audio": (noise, 16_000)}, max_new_tokens=1) as other:
            for _ in other:
                pass
        for stream in streams:
            for _ in stream:
                pass
    finally:
        del loop.run, encoder.run
    begin, end = encoded[-1]
    calm = median(after - before for before, after in itertools.pairwise(decoded) if after < begin)
    during = [after - before for before, after in itertools.pairwise(decoded) if begin <= after and before <= end]
    return max(during) / calm


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
