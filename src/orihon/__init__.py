"""Orihon keeps the whole history of an LLM agent on disk and folds it so that it fits in the model's window.

The names below are the public ones; everything else may change any day. Each is loaded when it is first used, so
that `import orihon` costs next to nothing: it reads no file, opens no socket, and starts no thread.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orihon.engine import Engine
    from orihon.engine import open_engine as open  # noqa: A004 - `orihon.open` is what people write
    from orihon.errors import (
        AccessDenied,
        BudgetTooSmall,
        CompressionFailed,
        Conflict,
        ContextError,
        ContextOverflow,
        Corrupt,
        LeaseHeld,
        LeaseLost,
        LimitReached,
        ModelError,
        ModelTimeout,
        NotFound,
        NotWritten,
        OrihonError,
        OutcomeUnknown,
        RunError,
        SchemaMismatch,
        ScriptError,
        SettingsError,
        SourceError,
        StoreError,
        StoreUnavailable,
        TangentError,
        ToolError,
        UsageError,
        VerificationFailed,
    )
    from orihon.records import Call, Message, Part, Usage
    from orihon.settings.load import load as load_settings
    from orihon.settings.schema import Settings
    from orihon.task.task import Task
    from orihon.task.window import Window
    from orihon.task_key import TaskKey

__all__ = [
    "AccessDenied",
    "BudgetTooSmall",
    "Call",
    "CompressionFailed",
    "Conflict",
    "ContextError",
    "ContextOverflow",
    "Corrupt",
    "Engine",
    "LeaseHeld",
    "LeaseLost",
    "LimitReached",
    "Message",
    "ModelError",
    "ModelTimeout",
    "NotFound",
    "NotWritten",
    "OrihonError",
    "OutcomeUnknown",
    "Part",
    "RunError",
    "SchemaMismatch",
    "ScriptError",
    "Settings",
    "SettingsError",
    "SourceError",
    "StoreError",
    "StoreUnavailable",
    "TangentError",
    "Task",
    "TaskKey",
    "ToolError",
    "Usage",
    "UsageError",
    "VerificationFailed",
    "Window",
    "load_settings",
    "open",
]

_PLACES = {
    "Call": "orihon.records:Call",
    "Engine": "orihon.engine:Engine",
    "Message": "orihon.records:Message",
    "Part": "orihon.records:Part",
    "Settings": "orihon.settings.schema:Settings",
    "Task": "orihon.task.task:Task",
    "TaskKey": "orihon.task_key:TaskKey",
    "Usage": "orihon.records:Usage",
    "Window": "orihon.task.window:Window",
    "load_settings": "orihon.settings.load:load",
    "open": "orihon.engine:open_engine",
}


def _mask_line(record: logging.LogRecord) -> bool:
    """Mask what is logged; what that takes is loaded with the first line."""
    masked: bool = importlib.import_module("orihon.ingest").mask_line(record)
    return masked


logging.getLogger("orihon").addFilter(_mask_line)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("orihon")
    if name not in __all__:
        raise AttributeError(f"module 'orihon' has no attribute {name!r}")
    module, _, attribute = _PLACES.get(name, f"orihon.errors:{name}").partition(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
