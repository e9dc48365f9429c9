"""A directory of replies, by request: repeating a run word for word costs nothing. Off unless a directory is given.

The key is the hash of the model and the complete request: messages, tools and parameters. The request itself is not
stored. Only complete replies without secrets are. A reply comes back unchanged, with its usage, so that a repeated run
counts, calibrates and folds as the first one did. A file that cannot be read or written is ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from orihon.errors import StoreError
from orihon.ingest import Sanitiser
from orihon.stores.files import directory_handle, disk_errors, make_directory, read_file, replace_file, warn_if_open

log = logging.getLogger("orihon")


class ReplyCache:
    """Replies in one directory, private to its owner."""

    def __init__(self, directory: Path, sanitiser: Sanitiser) -> None:
        self.directory, self.sanitiser = directory, sanitiser
        with disk_errors(f"Replies cannot be cached in {directory}"):
            make_directory(directory)
            warn_if_open(directory)

    def get(self, model: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the cached reply to exactly this request, or None."""
        key = _make_key(model, request)
        try:
            with directory_handle(self.directory) as dir_fd:
                entry = json.loads(read_file(f"{key}.json", dir_fd))
            reply: dict[str, Any] | None = entry["reply"] if entry["key"] == key else None
        except FileNotFoundError:
            return None
        except (OSError, StoreError, ValueError, LookupError, TypeError, RecursionError) as error:
            log.debug("The cached reply %s cannot be used: %s", key[:12], type(error).__name__)
            return None
        log.debug("The reply of %s comes from the cache (%s)", model, key[:12])
        return reply

    def put(self, model: str, request: dict[str, Any], reply: dict[str, Any]) -> None:
        """Store a reply, unless it contains a secret."""
        if self.sanitiser.value([model, reply]) != [model, reply]:
            log.debug("The reply of %s contains a secret and is not cached", model)
            return
        key = _make_key(model, request)
        data = json.dumps({"key": key, "model": model, "reply": reply}, ensure_ascii=False).encode("utf-8", "replace")
        try:
            with directory_handle(self.directory) as dir_fd:
                replace_file(f"{key}.json", data, dir_fd, durable=False)
        except (OSError, StoreError) as error:
            log.warning("A reply could not be cached in %s: %s", self.directory, error)


def _make_key(model: str, request: dict[str, Any]) -> str:
    content = json.dumps([model, request], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()
