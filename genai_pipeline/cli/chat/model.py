"""The package that a chat talks with, and how another one, or the same loaded otherwise, takes its place."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.cli.chat.options import check

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from genai_pipeline.importers.progress import Progress
    from genai_pipeline.pipeline import Pipeline

    Shown = Callable[[], AbstractContextManager[Progress]]

_OF_THE_PACKAGE: Final = ("precision", "draft", "context_length")  # load options that another package has its own of


class Model:
    """A loaded package; another takes its place, or none does."""

    def __init__(self, package: str, loading: Mapping[str, Any], shown: Shown) -> None:
        """Load it. Raises what ``gp.load`` does, and TemplateError or RequestError for what cannot hold a chat."""
        self.package = package
        self.loading = dict(loading)
        self._shown = shown
        self.pipe = self._load(package, self.loading)

    @property
    def name(self) -> str:
        """The package's own name."""
        return self.pipe.plan.package.name

    @property
    def title(self) -> str:
        """Its name, and where it comes from if that is not the same."""
        return self.name if self.name == self.package else f"{self.name} ({self.package})"

    @property
    def takes(self) -> tuple[str, ...]:
        """The modalities of the package's inputs."""
        return tuple(dict.fromkeys(declared.modality for declared in self.pipe.plan.package.inputs.values()))

    def replace(self, package: str, moved: Callable[[Pipeline], None]) -> None:
        """Another package, with the load options that are not the old one's own."""
        kept = {name: value for name, value in self.loading.items() if name not in _OF_THE_PACKAGE}
        self._put(package, kept, moved)

    def reload(self, changes: Mapping[str, Any], moved: Callable[[Pipeline], None]) -> None:
        """The same package, with load options changed; None: not given any more."""
        loading = {name: value for name, value in {**self.loading, **changes}.items() if value is not None}
        self._put(self.package, loading, moved)

    def close(self) -> None:
        """Stop the engine and free everything."""
        self.pipe.close()

    def _put(self, package: str, loading: dict[str, Any], moved: Callable[[Pipeline], None]) -> None:
        """Load in the place of what is loaded, since two may not fit; if that fails, load the old one again."""
        self._find(package, loading)
        if "profile" not in loading or loading["profile"] == self.loading.get("profile"):
            loading.pop("profile", None)  # a second trace would overwrite the first
        old = (self.package, {name: value for name, value in self.loading.items() if name != "profile"})
        self.pipe.close()
        try:
            self._use(package, loading, moved)
        except BaseException:
            self._use(*old, moved)
            raise

    def _use(self, package: str, loading: dict[str, Any], moved: Callable[[Pipeline], None]) -> None:
        pipe = self._load(package, loading)
        moved(pipe)
        self.pipe, self.package, self.loading = pipe, package, loading
        gc.collect()  # graphs of the old one are held in cycles: hundreds of megabytes until somebody looks

    def _find(self, package: str, loading: Mapping[str, Any]) -> None:
        """Pull and check the package while the old one is still there. Raises PackageError or OptionError."""
        from genai_pipeline.checking import check_package
        from genai_pipeline.errors import PackageInvalidError
        from genai_pipeline.import_checks import check_made
        from genai_pipeline.importers.pull import lending, resolve
        from genai_pipeline.loading import load_options, require_runtime

        precision = loading.get("precision")
        options = load_options({name: value for name, value in loading.items() if name != "precision"})
        require_runtime(options)
        with self._shown() as progress:
            path = resolve(package, precision=precision, progress=progress, check=check_made)
            found = check_package(
                path, lending(progress), backend=options.backend, providers=options.providers, precision=precision
            )
        if found.plan is None:
            first = next(problem for problem in found.problems if problem.severity == "error")
            message = f"{path} is not a valid package; first: {first.message}"
            raise PackageInvalidError(message, found.problems, hint=f"genai-pipeline validate {path}")

    def _load(self, package: str, loading: Mapping[str, Any]) -> Pipeline:
        import genai_pipeline as gp

        with self._shown() as progress:
            pipe = gp.load(package, progress=progress, **loading)
        try:
            _require_tokens(pipe)
            check(pipe, {})
            pipe.session().close()
        except BaseException:
            pipe.close()
            raise
        return pipe


def _require_tokens(pipe: Pipeline) -> None:
    """A conversation is with a package that makes tokens. Raises RequestError."""
    if not pipe.makes_tokens:
        from genai_pipeline.errors import RequestError

        message = f"{pipe.plan.package.name} makes no text token by token, so it holds no conversation"
        raise RequestError(message, param="package", hint="'run', 'embed', 'transcribe' and 'speak' do other tasks")


def available_providers(loading: Mapping[str, Any]) -> tuple[str, ...]:
    """Short names of the providers that a backend has itself; ``loading``: load options that say which backend."""
    from genai_pipeline.backends.offer import Offer
    from genai_pipeline.loading import load_options

    return Offer(load_options({name: loading[name] for name in ("backend",) if name in loading}).backend).names
