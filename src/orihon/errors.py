"""Every error that Orihon raises, in one tree.

    OrihonError
    ├─ UsageError (also ValueError)   a wrong argument, key, URL or command
    │  ├─ AccessDenied                no token, a wrong one, or another user's task
    │  └─ SettingsError               a wrong or unknown setting; .where .path
    ├─ StoreError
    │  ├─ NotFound                    no such task, blob or checkpoint; .kind .id
    │  ├─ Conflict                    somebody else was first                    retry
    │  ├─ LeaseHeld                   another writer has the task; .owner        retry
    │  ├─ LeaseLost                   our lease was taken; nothing was written
    │  ├─ Corrupt                     bytes that cannot be read; .where .line
    │  ├─ SchemaMismatch              the store is older or newer than this code
    │  ├─ NotWritten                  the write failed and left nothing behind   retry
    │  ├─ OutcomeUnknown              it may or may not be on disk; use a key     retry
    │  └─ StoreUnavailable            the disk or the database is away           retry
    ├─ ContextError
    │  ├─ BudgetTooSmall              the irreducible window does not fit; .needed .allowed
    │  ├─ CompressionFailed           the summariser failed; log and window are unchanged   retry
    │  └─ TangentError                closed twice, or restored across
    ├─ RunError
    │  ├─ LimitReached                steps, seconds, tokens or cost; .limit
    │  ├─ ModelError                  the provider failed                        retry, if it says so
    │  │  └─ ContextOverflow          the request is longer than the model's window; task.shrink_budget() folds harder
    │  ├─ SourceError                 a forge, or a file of issues, failed; .status
    │  ├─ ToolError                   a tool raised; it is in the log already
    │  └─ VerificationFailed          the work was checked, and is not done
    └─ ScriptError (also AssertionError)   a scripted model and what it was asked differ

An error carries a message for people, a hint what to do next, and whether trying again can help.
The docstring of a class is its default message. Messages and hints quote what was given, so they are masked here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

_masks: list[Callable[[str], str]] = []


def mask_with(mask: Callable[[str], str]) -> None:
    """Mask what errors say by this function from now on."""
    _masks[:] = [mask]


def _masked(text: str) -> str:
    for mask in _masks:
        text = mask(text)
    return text


class OrihonError(Exception):
    """Something went wrong."""

    exit_code: ClassVar[int] = 70
    default_hint: ClassVar[str] = "Run it again with --debug to see where it happened."
    default_retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, hint: str = "", retryable: bool | None = None) -> None:
        self.message = _masked(message) if message else (type(self).__doc__ or "").strip().split("\n")[0]
        self.hint = _masked(hint) if hint else self.default_hint
        self.retryable = self.default_retryable if retryable is None else retryable
        super().__init__(self.message)


class UsageError(OrihonError, ValueError):
    """The call cannot be understood."""

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
    """The store could not do it."""

    exit_code = 3
    default_hint = "`orihon doctor` looks at the store and explains."


class NotFound(StoreError):
    """There is no such thing in the store."""

    default_hint = "Check the id; `orihon ls` lists what there is."

    def __init__(self, message: str = "", *, kind: str = "task", id: str = "", hint: str = "") -> None:
        self.kind, self.id = kind, id
        super().__init__(message or f"There is no {kind} {id!r} in this store.", hint=hint)


class Conflict(StoreError):
    """Somebody else changed it first."""

    default_hint = "Read the present state and try again."
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

    default_hint = "Another process carries on with the task; resume it there, or here once that one ends."


class Corrupt(StoreError):
    """Stored bytes cannot be read."""

    default_hint = "`orihon doctor` explains what is broken; `orihon doctor --fix` repairs it."

    def __init__(self, message: str = "", *, where: str = "", line: int = 0, hint: str = "") -> None:
        self.where, self.line = where, line
        super().__init__(message, hint=hint)


class SchemaMismatch(StoreError):
    """The store was written by another version of Orihon."""

    default_hint = "Use the version of Orihon that wrote it."


class NotWritten(StoreError):
    """The write failed and left nothing behind."""

    default_hint = "Make room or mend the disk, then repeat the call."
    default_retryable = True


class OutcomeUnknown(StoreError):
    """The write may or may not have reached the disk."""

    default_hint = "Repeat the call with the same key: it is stored once, whatever happened."
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
    """What cannot be folded does not fit in the window."""

    default_hint = "Use a larger context_length, fewer tools, or a shorter system prompt."

    def __init__(self, message: str = "", *, needed: int = 0, allowed: int = 0, hint: str = "") -> None:
        self.needed, self.allowed = needed, allowed
        super().__init__(message, hint=hint)


class CompressionFailed(ContextError):
    """The summariser failed; the log and the window are unchanged."""

    default_hint = "Try again, or compress without a model."
    default_retryable = True


class TangentError(ContextError):
    """The tangent cannot be left this way."""

    default_hint = "Look at which tangents are open, and leave the innermost first."


class RunError(OrihonError):
    """The run ended early."""

    exit_code = 5
    default_hint = "Nothing is lost; the task can be resumed."


class LimitReached(RunError):
    """A limit of the run was reached."""

    default_hint = "Raise the limit, and resume the task."

    def __init__(self, message: str = "", *, limit: str = "", hint: str = "") -> None:
        self.limit = limit
        super().__init__(message, hint=hint)


class ModelError(RunError):
    """The model's provider failed."""

    default_hint = "Check the provider's status, the key and the address in the settings."


class ContextOverflow(ModelError):
    """The request is longer than the model's window."""

    default_hint = (
        "Fold harder with task.shrink_budget(), and send the next window; or set the model's real context_length."
    )


class SourceError(RunError):
    """The place that tasks come from failed."""

    default_hint = "Check its address and its token in the settings, and whether it can be reached."

    def __init__(self, message: str = "", *, status: int = 0, hint: str = "", retryable: bool | None = None) -> None:
        self.status = status
        super().__init__(message, hint=hint, retryable=retryable)


class ToolError(RunError):
    """A tool failed; the failure is recorded in the log."""

    default_hint = "The log says what the tool was given and what it said."


class VerificationFailed(RunError):
    """The work was checked, and it is not done."""

    default_hint = "The last verification says what is left; planning.verification.max_rounds allows more rounds."


class ScriptError(OrihonError, AssertionError):
    """The script of a model and what it was asked differ."""

    default_hint = "Compare the script with the requests that the model recorded."
