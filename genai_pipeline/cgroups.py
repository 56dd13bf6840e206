"""Control groups of this process: the folders whose limits apply to it, in both versions of the interface."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Group:
    """One folder of limits; every group of the process and all their parents bind it."""

    version: Literal[1, 2]
    folder: Path

    def read(self, name: str) -> str | None:
        """The text of a file of the group; None where there is none."""
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return None


def groups(controller: str, membership: Path = MEMBERSHIP, root: Path = ROOT) -> Iterator[Group]:
    """The groups that may limit what ``controller`` ("cpu", "memory") controls."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        hierarchy, controllers, path = ([*line.split(":", 2), "", ""])[:3]
        if hierarchy == "0":
            yield from (Group(2, folder) for folder in _ancestors(root, path))
        elif controller in controllers.split(","):
            for mount in dict.fromkeys((root / controller, root / controllers)):
                yield from (Group(1, folder) for folder in _ancestors(mount, path))


def _ancestors(mount: Path, path: str) -> list[Path]:
    """The group's folder and its parents up to the mount; inside a container the group may be the mount itself."""
    folder = mount / path.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(mount))]
