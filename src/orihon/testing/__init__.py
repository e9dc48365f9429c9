"""Tools for testing agents and stores that use Orihon.

`ScriptedModel` and `serve` run an agent offline. `StoreContract` is the test suite that every store must pass.
Each name is loaded on first use: the scripted model does not need pytest, the contract does.
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

_MODULES = {
    "DurableStoreContract": "contract",
    "ScriptedModel": "model",
    "ScriptedServer": "server",
    "StoreContract": "contract",
    "serve": "server",
}

if "pytest" in sys.modules:  # failed assertions of the contract then show both values
    sys.modules["pytest"].register_assert_rewrite("orihon.testing.contract")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'orihon.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"orihon.testing.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
