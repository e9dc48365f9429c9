"""Where a person's own files are, for what belongs to a store that has no place on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """The directory of Orihon in the person's data."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "orihon"
