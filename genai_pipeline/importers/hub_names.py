"""Names of models on a hub: ``hf:OWNER/NAME[@REV][:SUBFOLDER]``, read without the hub's library."""

from __future__ import annotations

import re
from dataclasses import dataclass

from genai_pipeline.errors import PackageNotFoundError

PREFIX = "hf:"
_FORM = re.compile(
    r"hf:(?P<owner>[A-Za-z0-9][\w.-]*)/(?P<name>[\w.-]+)(?:@(?P<revision>[^:@\s]+))?(?::(?P<inside>[^:\s]+))?"
)
_UNNAMEABLE = re.compile(r"[^a-z0-9._-]+")
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the hub; ``inside`` is a folder of its repository, or one GGUF file ("": the repository's top)."""

    owner: str
    name: str
    revision: str = _MAIN
    inside: str = ""

    @property
    def repository(self) -> str:
        """Owner and name as the hub writes them."""
        return f"{self.owner}/{self.name}"

    @property
    def text(self) -> str:
        """The whole name as callers give it."""
        revision = "" if self.revision == _MAIN else f"@{self.revision}"
        return f"{PREFIX}{self.repository}{revision}{f':{self.inside}' if self.inside else ''}"

    @property
    def package(self) -> str:
        """What its package is called: the repository's own name, in letters that a package's name may have."""
        return _UNNAMEABLE.sub("-", self.name.lower()).strip("-._") or "model"

    @property
    def folder(self) -> str:
        """Its folder in the cache of packages."""
        inside = self.inside.replace("/", "--")
        return "--".join(part for part in ("hf", self.owner, self.name, inside) if part)


def is_hub_name(text: str) -> bool:
    """Whether a PACKAGE argument means a model on the hub."""
    return text.startswith(PREFIX)


def hub_name(text: str) -> HubName:
    """The parts of a hub name. Raises PackageNotFoundError for one of another form."""
    found = _FORM.fullmatch(text)
    inside = (found["inside"] or "").strip("/") if found else ""
    if found is None or any(part in ("", ".", "..") for part in inside.split("/") if inside):
        raise PackageNotFoundError(
            f"'{text}' is no name of a model on the hub",
            hint="the form is hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME:FOLDER",
        )
    return HubName(found["owner"], found["name"], found["revision"] or _MAIN, inside)
