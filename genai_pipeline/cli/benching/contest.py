"""The contestants of ``bench``, in this process or each in its own. Run as a module, this is such a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from genai_pipeline.cli.benching.load import Schedule
from genai_pipeline.cli.benching.measure import Record
from genai_pipeline.cli.benching.turns import Child, answer


class Contestant(Protocol):
    """Something that runs loads."""

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""

    def close(self) -> None:
        """Free what it holds."""


def own(package: str, options: Mapping[str, Any]) -> Contestant:
    """This project's engine, the package loaded with these options of ``gp.load``."""
    import genai_pipeline as gp
    from genai_pipeline.cli.benching.ours import OwnContestant

    return OwnContestant(gp.load(package, **options))


def peer(package: str, options: Mapping[str, Any]) -> Contestant:
    """onnxruntime-genai on the package's ONNX file; ``options`` has ``max_length``."""
    from genai_pipeline.checking import accept, check_package
    from genai_pipeline.cli.benching.peer import PeerContestant

    checked = check_package(package)
    return PeerContestant(accept(package, checked.plan, checked.problems), options["max_length"])


CONTESTANTS = {"own": own, "peer": peer}


class Remote:
    """A contestant in a process of its own. Raises BackendError with the child's own words when it fails."""

    def __init__(self, kind: str, package: str, options: Mapping[str, Any]) -> None:
        self._child = Child(kind, ["-m", __name__])
        try:
            self._child.ask({"kind": kind, "package": package, "options": dict(options)})
        except BaseException:
            self.close()
            raise

    def run(self, schedule: Schedule) -> list[Record]:
        """Run every request to its end, in the order of the schedule."""
        return [Record.from_dict(fields) for fields in self._child.ask(schedule.to_dict())]

    def close(self) -> None:
        """End the process."""
        self._child.close()


def main() -> None:
    """The child: set up the contestant that the first question names, then run a schedule for each."""
    contestants: list[Contestant] = []

    def reply(question: Mapping[str, Any]) -> Any:
        if contestants:
            return [record.to_dict() for record in contestants[0].run(Schedule.from_dict(question))]
        contestants.append(CONTESTANTS[question["kind"]](question["package"], question["options"]))
        return None

    answer(reply)
    for contestant in contestants:
        contestant.close()


if __name__ == "__main__":
    main()
