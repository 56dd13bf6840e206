"""The one tree of errors that users, files, models and clients can cause.

Every error says what happened in its message, what to do next in ``hint``, carries a stable ``code``, says
whether the same call may succeed later (``retryable``) and which exit code the command gives (``exit_code``).
Longer than most modules because it is the whole tree in one place, and only declarations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from genai_pipeline.problems import Location, Problem


class GenaiError(Exception):
    """Base of every error raised on purpose by genai_pipeline."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-ready fields."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "retryable": self.retryable}


class ConfigInvalidError(GenaiError):
    """A configuration file has problems; ``problems`` lists all of them."""

    code = "config_invalid"
    exit_code = 2

    def __init__(self, message: str, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems

    def to_dict(self) -> dict[str, Any]:
        """The error with all its problems as JSON-ready fields."""
        return {**super().to_dict(), "problems": [problem.to_dict() for problem in self.problems]}


class PackageError(GenaiError):
    """A package cannot be used."""

    code = "package_error"
    exit_code = 3


class PackageInvalidError(PackageError):
    """A package has problems; ``problems`` lists all of them."""

    code = "package_invalid"

    def __init__(self, message: str, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems

    def to_dict(self) -> dict[str, Any]:
        """The error with all its problems as JSON-ready fields."""
        return {**super().to_dict(), "problems": [problem.to_dict() for problem in self.problems]}


class GraphFileError(PackageError):
    """An ONNX file, or a file of weights it names, cannot be used; ``problem`` is the code validation reports."""

    code = "graph_file_invalid"

    def __init__(self, message: str, *, problem: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = problem

    def to_dict(self) -> dict[str, Any]:
        """The error with its problem code as JSON-ready fields."""
        return {**super().to_dict(), "problem": self.problem}


class PackagePathError(PackageError):
    """A file that a package names may not be opened; ``problem`` is the code validation reports, e.g. path.outside."""

    code = "package_path"

    def __init__(self, message: str, *, problem: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = problem

    def to_dict(self) -> dict[str, Any]:
        """The error with its problem code as JSON-ready fields."""
        return {**super().to_dict(), "problem": self.problem}


class PackageNotFoundError(PackageError):
    """No folder, file or known name answers to what was asked for."""

    code = "package_not_found"
    exit_code = 2


class OperationUnusableError(PackageError):
    """An operation that a package on this system adds cannot be loaded, or two of them have one name."""

    code = "operation_unusable"


class DraftPackageError(PackageError):
    """A package cannot draft for the one it was given for: the message says what does not fit."""

    code = "draft_package_unfit"


class PullError(PackageError):
    """The weights of a package could not be fetched or did not match their recipe."""

    code = "pull_failed"
    exit_code = 1


class OfflineError(PullError):
    """Something must be fetched and fetching is switched off or impossible."""

    code = "offline"
    retryable = True


class ImportModelError(PackageError):
    """A model file cannot be turned into a package; nothing was written."""

    code = "import_unsupported"
    exit_code = 1


class ImportRefusedError(ImportModelError):
    """Keys of a source change the answer and cannot be mapped; ``rows`` lists all of them."""

    code = "import_refused"

    def __init__(self, message: str, *, rows: tuple[Mapping[str, str], ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rows = rows

    def to_dict(self) -> dict[str, Any]:
        """The error with all its refusals as JSON-ready fields."""
        return {**super().to_dict(), "refused": [dict(row) for row in self.rows]}


class ArchiveError(PackageError):
    """A package cannot be packed, or an archive is damaged, hostile or of another version; nothing was written."""

    code = "archive_invalid"


class ArchiveFileError(ArchiveError):
    """The file of an archive cannot be written or read: its name is taken, or the system refuses."""

    code = "archive_file"
    exit_code = 1


class ReferenceFileError(PackageError):
    """The answers that were recorded in a package cannot be read."""

    code = "reference_invalid"


class ExpressionError(GenaiError):
    """An expression is outside the language, cannot be typed, or has no value for what it was given."""

    code = "invalid_expression"
    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", at: Location | None = None) -> None:
        super().__init__(message, hint=hint)
        self.at = at


class RequestError(GenaiError):
    """A request asks for something that cannot be done; ``param`` names the field at fault."""

    code = "invalid_request"
    exit_code = 2

    def __init__(self, message: str, *, param: str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.param = param

    def to_dict(self) -> dict[str, Any]:
        """The error with the field at fault as JSON-ready fields."""
        return {**super().to_dict(), "param": self.param}


class OptionError(RequestError):
    """An option is unknown, out of range, or not one this package or version can honour."""

    code = "invalid_option"


class ConstraintError(OptionError):
    """What an answer must look like cannot be used or enforced; ``pointer`` is the JSON pointer of the ``keyword``.

    Both are empty when the fault lies in no keyword of a JSON Schema.
    """

    code = "invalid_constraint"

    def __init__(
        self, message: str, *, param: str | None = None, keyword: str = "", pointer: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, param=param, hint=hint)
        self.keyword = keyword
        self.pointer = pointer

    def to_dict(self) -> dict[str, Any]:
        """The error with the keyword at fault as JSON-ready fields."""
        return {**super().to_dict(), "keyword": self.keyword, "pointer": self.pointer}


class MediaError(RequestError):
    """An image or a sound cannot be read, is too large, or is not what a program can prepare."""

    code = "invalid_media"


class PromptTooLongError(RequestError):
    """The prompt, or the prompt with its explicit budget, does not fit the context."""

    code = "context_length_exceeded"


class TemplateError(RequestError):
    """The chat template is absent, or refused the conversation with a message of its own."""

    code = "template_error"


class CheckpointError(GenaiError):
    """A checkpoint file cannot be written or read, is damaged, or belongs to something else."""

    code = "checkpoint_invalid"


class CapacityError(GenaiError):
    """The request can never fit the memory that was given."""

    code = "capacity_exceeded"
    exit_code = 4


class QueueFullError(CapacityError):
    """As many requests wait as may wait; the same one may be taken later."""

    code = "queue_full"
    retryable = True


class RequestTimeoutError(GenaiError):
    """A request's ``timeout`` ran out while it was queued or running."""

    code = "timeout"
    retryable = True


class BackendError(GenaiError):
    """A backend could not be set up, or a graph run failed."""

    code = "backend_error"


class RuntimeMissingError(BackendError):
    """No inference runtime is installed, or two that exclude each other are."""

    code = "runtime_missing"
    exit_code = 5


class ProviderUnavailableError(BackendError):
    """An execution provider that was asked for by name is not there."""

    code = "provider_unavailable"
    exit_code = 5


class GraphLoadError(BackendError):
    """A graph cannot be loaded by the runtime, e.g. because the provider lacks a kernel."""

    code = "graph_load_failed"


class GraphRunError(BackendError):
    """A graph run failed; the message names component and stage."""

    code = "graph_run_failed"


class OperationFailedError(GenaiError):
    """A host operation failed on the values it was given; the message names operation and stage."""

    code = "operation_failed"


class ConstraintRunError(GenaiError):
    """A constraint allows no further token of this vocabulary, or following it takes more than its limits."""

    code = "constraint_failed"


class ExtraMissingError(GenaiError):
    """A library of an optional extra is needed and not installed; the hint says how to install it."""

    code = "extra_missing"
    exit_code = 5


class OutputError(GenaiError):
    """The command's product cannot be written: the disk is full, or stdout is closed."""

    code = "output_failed"


class EngineClosedError(GenaiError):
    """The pipeline was closed while or before the request ran."""

    code = "engine_closed"


class RequestBrokenError(GenaiError):
    """Something unforeseen happened to one request, with the cause chained; others go on."""

    code = "request_broken"


class EngineFailedError(GenaiError):
    """A fatal error stopped the engine; every waiting request gets this, with the cause chained."""

    code = "engine_failed"
