"""Every error that Orihon raises, in one tree.

    OrihonError
    ├─ UsageError (also ValueError)   a wrong argument, key, URL or command
    │  ├─ AccessDenied                no token, a wrong one, or another user's task
    │  └─ SettingsError               a wrong or unknown setting; .where .path
    ├─ StoreError
    │  ├─ NotFound                    no such task, blob or checkpoint; .kind .id
    │  ├─ Conflict                    another process changed it first           retry
    │  ├─ LeaseHeld                   another writer has the task; .owner        retry
    │  ├─ LeaseLost                   our lease was taken; nothing was written
    │  ├─ Corrupt                     bytes that cannot be read; .where .line
    │  ├─ SchemaMismatch              the store is older or newer than this code
    │  ├─ NotWritten                  the write failed and left nothing behind   retry
    │  ├─ OutcomeUnknown              it may or may not be on disk; use a key     retry
    │  └─ StoreUnavailable            the disk or the database is unavailable    retry
    ├─ ContextError
    │  ├─ BudgetTooSmall              the irreducible window does not fit; .needed .allowed
    │  ├─ CompressionFailed           the summariser failed; log and window are unchanged   retry
    │  └─ TangentError                closed twice, or restored across
    ├─ RunError
    │  ├─ LimitReached                steps, seconds, tokens or cost; .limit
    │  ├─ ModelError                  the provider failed                        retry, if .retryable
    │  │  ├─ ModelTimeout             it did not answer in time
    │  │  └─ ContextOverflow          the request is longer than the model's window; task.shrink_budget() folds harder
    │  ├─ SourceError                 GitHub, GitLab or a file of issues failed; .status
    │  ├─ ToolError                   a tool raised; it is in the log already
    │  └─ VerificationFailed          verification found that the work is not done
    └─ ScriptError (also AssertionError)   a request differs from the script of a scripted model

An error has a message, a hint for the next step, and a flag that says whether a retry can help. The docstring of a
class is its default message. Messages and hints quote user input, so they are masked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

_masks: list[Callable[[str], str]] = []


def mask_with(mask: Callable[[str], str]) -> None:
    """Mask the messages and hints of all later errors with this function."""
    _masks[:] = [mask]


def _mask(text: str) -> str:
    for mask in _masks:
        text = mask(text)
    return text


class OrihonError(Exception):
    """An error occurred."""

    exit_code: ClassVar[int] = 70
    default_hint: ClassVar[str] = "Run the command again with --debug to see the traceback."
    default_retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, hint: str = "", retryable: bool | None = None) -> None:
        self.message = _mask(message) if message else (type(self).__doc__ or "").strip().split("\n")[0]
        self.hint = _mask(hint) if hint else self.default_hint
        self.retryable = self.default_retryable if retryable is None else retryable
        super().__init__(self.message)


class UsageError(OrihonError, ValueError):
    """Invalid argument."""

    exit_code = 2
    default_hint = "`orihon --help` lists the commands; docs/ describes the library."


class AccessDenied(UsageError):
    """The caller is not allowed to do this."""

    default_hint = "Set ORIHON_TOKEN to your token, or ask an administrator."


class SettingsError(UsageError):
    """A setting is wrong."""

    default_hint = "docs/settings.md lists every setting; config.example.yaml shows them as a file."

    def __init__(self, message: str = "", *, where: str = "", path: str = "", hint: str = "") -> None:
        self.where, self.path = where, path
        super().__init__(message, hint=hint)


class StoreError(OrihonError):
    """The store failed."""

    exit_code = 3
    default_hint = "`orihon doctor` checks the store and reports problems."


class NotFound(StoreError):
    """The store does not contain this object."""

    default_hint = "Check the id; `orihon ls` lists the tasks."

    def __init__(self, message: str = "", *, kind: str = "task", id: str = "", hint: str = "") -> None:
        self.kind, self.id = kind, id
        if kind != "task":
            hint = hint or f"Check the number or id of the {kind}."
        super().__init__(message or f"There is no {kind} {id!r} in this store.", hint=hint)


class Conflict(StoreError):
    """Another process changed it first."""

    default_hint = "Read the current state and try again."
    default_retryable = True


class LeaseHeld(StoreError):
    """Another process is working on this task."""

    default_hint = "Wait until that process ends."
    default_retryable = True

    def __init__(self, message: str = "", *, owner: str = "", hint: str = "") -> None:
        self.owner = owner
        super().__init__(message, hint=hint)


class LeaseLost(StoreError):
    """The lease on this task was lost; nothing was written."""

    default_hint = "Another process continues the task. Wait until it ends before you resume the task here."


class Corrupt(StoreError):
    """Stored bytes cannot be read."""

    default_hint = "`orihon doctor` reports the damage; `orihon doctor --fix` repairs it."

    def __init__(self, message: str = "", *, where: str = "", line: int = 0, hint: str = "") -> None:
        self.where, self.line = where, line
        super().__init__(message, hint=hint)


class SchemaMismatch(StoreError):
    """The store was written by another version of Orihon."""

    default_hint = "Use the version of Orihon that wrote it."


class NotWritten(StoreError):
    """The write failed and left nothing behind."""

    default_hint = "Free some space or repair the disk, then repeat the call."
    default_retryable = True


class OutcomeUnknown(StoreError):
    """The write may or may not have reached the disk."""

    default_hint = "Repeat the call with the same key: the record is stored only once in either case."
    default_retryable = True


class StoreUnavailable(StoreError):
    """The store cannot be reached."""

    default_hint = "Check the disk or the database, then try again."
    default_retryable = True


class ContextError(OrihonError):
    """The window could not be built."""

    exit_code = 4
    default_hint = "Use a larger context_length, or start a new task."


class BudgetTooSmall(ContextError):
    """The messages that cannot be folded do not fit in the window."""

    default_hint = "Use a larger context_length, fewer tools, or a shorter system prompt."

    def __init__(self, message: str = "", *, needed: int = 0, allowed: int = 0, hint: str = "") -> None:
        self.needed, self.allowed = needed, allowed
        super().__init__(message, hint=hint)


class CompressionFailed(ContextError):
    """The summariser failed; the log and the window are unchanged."""

    default_hint = "Try again, or compact without a model."
    default_retryable = True


class TangentError(ContextError):
    """The tangent cannot be closed."""

    default_hint = "Check which tangents are open, and close the innermost first."


class RunError(OrihonError):
    """The run ended early."""

    exit_code = 5
    default_hint = "Nothing is lost; the task can be resumed."


class LimitReached(RunError):
    """A limit of the run was reached."""

    default_hint = "Raise the limit, then resume the task."

    def __init__(self, message: str = "", *, limit: str = "", hint: str = "") -> None:
        self.limit = limit
        super().__init__(message, hint=hint)


class ModelError(RunError):
    """The model's provider failed."""

    default_hint = "Check the provider's status, and the API key and address in the settings."


class ModelTimeout(ModelError):
    """The model did not answer in time."""

    default_hint = "A model that is slow to start needs a larger `llm.stall_seconds`."


class ContextOverflow(ModelError):
    """The request is longer than the model's window."""

    default_hint = (
        "Call task.shrink_budget() and send the next window, or set context_length to the model's actual limit."
    )


class SourceError(RunError):
    """The task source failed."""

    default_hint = "Check the address and the token in the settings, and whether the server is reachable."

    def __init__(self, message: str = "", *, status: int = 0, hint: str = "", retryable: bool | None = None) -> None:
        self.status = status
        super().__init__(message, hint=hint, retryable=retryable)


class ToolError(RunError):
    """A tool failed; the failure is recorded in the log."""

    default_hint = "The log contains the arguments and the output of the tool."


class VerificationFailed(RunError):
    """Verification found that the work is not done."""

    default_hint = (
        "The last verification lists what is missing; raise planning.verification.max_rounds for more rounds."
    )


class ScriptError(OrihonError, AssertionError):
    """A request differs from the script of the scripted model."""

    default_hint = "Compare the script with the requests that the model recorded."
