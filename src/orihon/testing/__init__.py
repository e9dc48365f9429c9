"""What users and our own tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("orihon.testing.contract", "orihon.testing.machine")  # so that failures say what differs

from orihon.testing.contract import DurableStoreContract, StoreContract  # noqa: E402

__all__ = ["DurableStoreContract", "StoreContract"]
