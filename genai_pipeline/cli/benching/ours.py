"""This project's own engine under a load: one thread per client, through the public interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.benching.load import Job, Schedule
from genai_pipeline.cli.benching.measure import Record
from genai_pipeline.errors import GenaiError

if TYPE_CHECKING:
    from genai_pipeline.pipeline import Pipeline


class OwnContestant:
    """Runs loads on a loaded pipeline."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""
        records: dict[int, Record] = {}
        jobs = iter(enumerate(schedule.jobs))
        start = time.perf_counter()
        if schedule.concurrency is None:
            threads = list(self._open(jobs, records, start))
        else:
            lock = threading.Lock()
            threads = [
                _thread(self._client, jobs, lock, records, start)
                for _ in range(min(schedule.concurrency, len(schedule.jobs)))
            ]
        for thread in threads:
            thread.join()
        return [records[index] for index in range(len(schedule.jobs))]

    def close(self) -> None:
        """Close the pipeline."""
        self._pipe.close()

    def _open(
        self, jobs: Iterator[tuple[int, Job]], records: dict[int, Record], start: float
    ) -> Iterator[threading.Thread]:
        """A thread for each request, started when it is due."""
        for index, job in jobs:
            time.sleep(max(0.0, start + job.arrival - time.perf_counter()))
            yield _thread(self._request, index, job, records, start, job.arrival)

    def _client(
        self, jobs: Iterator[tuple[int, Job]], lock: threading.Lock, records: dict[int, Record], start: float
    ) -> None:
        """Send one request after another until none is left."""
        while True:
            with lock:
                taken = next(jobs, None)
            if taken is None:
                return
            self._request(*taken, records, start, time.perf_counter() - start)

    def _request(self, index: int, job: Job, records: dict[int, Record], start: float, due: float) -> None:
        moments: list[float] = []
        usage, failure = None, None
        try:
            with self._pipe.stream(tokens=job.tokens, **_options(job)) as events:
                for event in events:
                    if event.token is not None:
                        moments.append(time.perf_counter() - start)
                    usage, failure = event.usage or usage, event.error or failure
        except GenaiError as error:
            failure = error
        cached = None if usage is None else usage.cached_tokens
        records[index] = Record(due, tuple(moments), len(job.tokens), cached, None if failure is None else str(failure))


def _options(job: Job) -> Mapping[str, Any]:
    """Greedy, and exactly as long as the load says."""
    return {"max_new_tokens": job.output_tokens, "temperature": 0, "ignore_eos": True}


def _thread(target: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
