"""Ends a graph run that nobody waits for any more, at once, from another thread than the one that is in it.

A run is given up when every request in it has been, or when the engine closes; a run that others share goes on. That
it ends so is no fault of anything: it commits nothing, and its requests are ended by whoever gave them up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

from genai_pipeline.errors import GenaiError

if TYPE_CHECKING:
    from genai_pipeline.backends.protocol import Binding
    from genai_pipeline.engine.request import RequestState

T = TypeVar("T")


class RunGivenUpError(Exception):
    """A run ended because nobody waits for it, or did not start."""


class CurrentRun:
    """The run that one thread is in, if any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Collection[RequestState] = ()
        self._bindings: Collection[Binding] = ()
        self._given_up = False
        self._closed = False

    def run(self, requests: Iterable[RequestState], bindings: Collection[Binding], work: Callable[[], T]) -> T:
        """What ``work`` gives, which runs ``bindings`` for ``requests``.

        Raises RunGivenUpError when that is not wanted, or what ``work`` raises.
        """
        with self._lock:
            self._requests, self._bindings = tuple(requests), bindings
            self._given_up = self._unwanted
            if self._given_up:
                self._requests = self._bindings = ()
                raise RunGivenUpError
        try:
            return work()
        except GenaiError as error:
            if self._given_up:
                raise RunGivenUpError from error
            raise
        finally:
            self._leave()

    def end_if_unwanted(self) -> None:
        """End the run if all its requests were given up. From any thread; without effect where nothing runs."""
        with self._lock:
            if self._bindings and not self._given_up and self._unwanted:
                self._given_up = True
                for binding in self._bindings:
                    binding.cancel()

    def close(self) -> None:
        """End the run, and let none start any more."""
        self._closed = True
        self.end_if_unwanted()

    @property
    def _unwanted(self) -> bool:
        return self._closed or all(request.given_up or request.done for request in self._requests)

    def _leave(self) -> None:
        with self._lock:
            if self._given_up:
                for binding in self._bindings:
                    binding.resume()
            self._requests = self._bindings = ()
