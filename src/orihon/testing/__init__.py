"""What users and our own tests share."""

from __future__ import annotations

from orihon.testing.contract import DurableStoreContract, StoreContract

__all__ = ["DurableStoreContract", "StoreContract"]
