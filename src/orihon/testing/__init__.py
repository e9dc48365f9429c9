"""What users and our own tests share: the contract of a store, and a model that follows a script.

Each name is loaded when it is first used, so that whoever wants the scripted model alone does not need pytest.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orihon.testing.contract import DurableStoreContract, StoreContract
    from orihon.testing.model import ScriptedModel
    from orihon.testing.server import ScriptedServer, serve

__all__ = ["DurableStoreContract", "ScriptedModel", "ScriptedServer", "StoreContract", "serve"]

_PLACES = {
    "DurableStoreContract": "contract",
    "ScriptedModel": "model",
    "ScriptedServer": "server",
    "StoreContract": "contract",
    "serve": "server",
}

if "pytest" in sys.modules:  # so that the failures of the contract say what differs
    sys.modules["pytest"].register_assert_rewrite("orihon.testing.contract", "orihon.testing.machine")


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'orihon.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"orihon.testing.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
