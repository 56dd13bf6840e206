"""The one module that talks to a model hub: lists a repository and fetches files of it into the hub's own cache.

Home of huggingface_hub (extra ``hub``). Its settings hold here too, read when they are needed: ``HF_TOKEN``,
``HF_ENDPOINT``, ``HF_HUB_OFFLINE``, ``HF_HUB_CACHE`` and ``HF_HOME``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import ExtraMissingError, OfflineError, PackageNotFoundError, PullError
from genai_pipeline.importers.hub_names import HubName
from genai_pipeline.importers.progress import Progress

if TYPE_CHECKING:
    from types import ModuleType

_TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository at one commit; of one that is read from the cache, those that are there."""

    commit: str
    files: tuple[str, ...]


def is_offline() -> bool:
    """Whether the hub's own settings forbid the network."""
    return any(os.environ.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def listing(name: HubName, *, offline: bool) -> Listing:
    """Commit and files of what a name means now; ``offline`` asks the cache instead.

    Raises PackageNotFoundError, OfflineError, PullError or ExtraMissingError.
    """
    library = _library()
    if offline:
        return _cached_listing(name)
    with _named_errors(library, name):
        info = library.HfApi(endpoint=_endpoint()).model_info(name.repository, revision=name.revision)
    files = tuple(sorted(file.rfilename for file in info.siblings or ()))
    return Listing(str(info.sha), files)


def fetch(name: HubName, found: Listing, files: Sequence[str], progress: Progress, *, offline: bool) -> Path:
    """The folder of the commit in the hub's cache, with these files of it. Raises as ``listing`` does."""
    library = _library()
    library.utils.disable_progress_bars()
    folder = _snapshots(name) / found.commit
    for index, file in enumerate(files):
        progress(f"fetching {file}", index, len(files))
        with _named_errors(library, name):
            library.hf_hub_download(
                name.repository,
                file,
                revision=found.commit,
                cache_dir=_cache(),
                endpoint=_endpoint(),
                local_files_only=offline,
            )
    _keep_reference(name, found.commit)
    progress(f"fetched {name.text}", len(files), len(files))
    return folder


def _library() -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        message = "models on the hub need huggingface_hub"
        raise ExtraMissingError(message, hint="pip install 'genai-pipeline[hub]'") from error
    return huggingface_hub


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _cache() -> Path:
    """The hub's cache folder."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _repository(name: HubName) -> Path:
    return _cache() / f"models--{name.owner}--{name.name}"


def _snapshots(name: HubName) -> Path:
    return _repository(name) / "snapshots"


def _keep_reference(name: HubName, commit: str) -> None:
    """Notes which commit the revision means, as the library does when it is asked by that name."""
    if name.revision != commit:
        reference = _repository(name) / "refs" / name.revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(commit, encoding="utf-8")


def _cached_listing(name: HubName) -> Listing:
    reference = _repository(name) / "refs" / name.revision
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else name.revision
    folder = _snapshots(name) / commit
    if not folder.is_dir():
        raise OfflineError(
            f"{name.text} is not in the hub's cache ({_cache()}), and downloads are switched off",
            hint=f"genai-pipeline pull {name.text} with the network on",
        )
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return Listing(commit, tuple(files))


@contextmanager
def _named_errors(library: Any, name: HubName) -> Iterator[None]:
    """The library's errors as ours, each with what to do."""
    errors = library.errors
    try:
        yield
    except errors.GatedRepoError as error:
        hint = "accept its conditions on the hub's page of the model, then set HF_TOKEN to a token of that account"
        raise PullError(f"{name.repository} is gated: the hub wants its conditions accepted", hint=hint) from error
    except errors.RepositoryNotFoundError as error:
        hint = "check the spelling; for a private one set HF_TOKEN to a token that may read it"
        message = f"the hub has no model '{name.repository}', or it is private"
        raise PackageNotFoundError(message, hint=hint) from error
    except errors.RevisionNotFoundError as error:
        message = f"{name.repository} has no revision '{name.revision}'"
        raise PackageNotFoundError(message, hint="a branch, a tag or a commit's hash") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        hint = "with the network on, genai-pipeline pull fetches it"
        raise OfflineError(
            f"{name.text}: a file is not in the hub's cache, and {_first_line(error)}", hint=hint
        ) from error
    except (errors.EntryNotFoundError, errors.HFValidationError) as error:
        raise PullError(f"{name.text}: {_first_line(error)}") from error
    except (OSError, *errors.HfHubHTTPError.__bases__) as error:
        if getattr(error, "response", None) is not None:
            raise PullError(f"{name.text}: the hub refuses: {_first_line(error)}", hint="try again later") from error
        raise OfflineError(
            f"{name.text}: the hub cannot be reached: {_first_line(error)}",
            hint="GENAI_PIPELINE_OFFLINE=1 takes what is in the cache already",
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
