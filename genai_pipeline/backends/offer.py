"""What a backend can run graphs on, asked for only when somebody wants to know."""

from __future__ import annotations

from functools import cached_property

from genai_pipeline.backends.protocol import Backend
from genai_pipeline.backends.providers import choose, default_provider, unknown_hint
from genai_pipeline.backends.registry import AUTO, backend_names, make_backend
from genai_pipeline.errors import OptionError, ProviderUnavailableError, RuntimeMissingError
from genai_pipeline.graph.variants import Found
from genai_pipeline.metadata.provider_names import PLUGIN, AskedProviders, label_of
from genai_pipeline.problems import one_of


class Offer:
    """The providers of one backend, plugins by what names them. Without its runtime, there are none.

    ``threads``: what it is going to be made with, where that may be refused.
    """

    def __init__(self, backend: str | Backend = AUTO, threads: int | None = None) -> None:
        self._asked = backend
        self._threads = threads

    @cached_property
    def _backend(self) -> Backend:
        return make_backend(self._asked, self._threads)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Short names of the backend's own providers."""
        try:
            return self._backend.providers()
        except RuntimeMissingError:
            return ()

    @property
    def default(self) -> str:
        """The provider of graphs for which none is asked."""
        return default_provider(self.names)

    def find(self, asked: str) -> Found:
        """Whether a provider is there, by what names it, with or without options."""
        label = label_of(asked)
        where = "here" if self._asked == AUTO else f"with the backend {self._backend.name}"
        try:
            return Found(self._backend.find(asked), f"{label} is available {where}")
        except (ProviderUnavailableError, RuntimeMissingError, OptionError) as error:
            missing = f"{label} is not available {where}"
            return Found(None, error.message if label.startswith(PLUGIN) else missing)

    def require(self, asked: AskedProviders | None) -> None:
        """Refuse what cannot be had: a runtime that is not there, a provider that nobody has, a list of absent ones.

        Raises RuntimeMissingError, ProviderUnavailableError, OptionError.
        """
        available = self._backend.providers()
        for entries in () if asked is None else asked.lists.values():
            for entry in entries:
                label = label_of(entry)
                hint = "" if label.startswith(PLUGIN) else unknown_hint(label, available)
                if label in backend_names():
                    hint = f"it is a backend: --backend {label}"
                if hint:
                    message = f"there is no provider '{label}'; the backend {self._backend.name} has"
                    raise ProviderUnavailableError(f"{message} {one_of(available)}", hint=hint)
            choose(entries, self._backend.find, required=len(entries) == 1)
