"""Replies on disk, by what was asked: a run that is repeated word for word costs nothing. Off unless a place is given.

The key is the hash of the model and of the whole request: messages, tools and parameters. The request itself is not
kept. Only whole replies are; one with something in it that looks like a secret is not. A reply comes back exactly as it
was, with its usage, so that a repeated run counts, calibrates and folds as the first one did; the log says (debug) that
nothing was spent. What cannot be read or written is as if it were not there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

from orihon.errors import StoreError
from orihon.ingest import Sanitiser
from orihon.stores.files import (
    create_file,
    directory_handle,
    disk_errors,
    make_directory,
    read_file,
    warn_if_open,
    write_all,
)

log = logging.getLogger("orihon")


class ReplyCache:
    """Replies in one directory, private to its owner."""

    def __init__(self, directory: Path, sanitiser: Sanitiser) -> None:
        self.directory, self.sanitiser = directory, sanitiser
        with disk_errors(f"Replies cannot be cached in {directory}"):
            make_directory(directory)
            warn_if_open(directory)

    def get(self, model: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to exactly this request, if it was given before."""
        key = _key(model, request)
        try:
            with directory_handle(self.directory) as place:
                kept = json.loads(read_file(f"{key}.json", place))
            reply: dict[str, Any] | None = kept["reply"] if kept["key"] == key else None
        except FileNotFoundError:
            return None
        except (OSError, StoreError, ValueError, LookupError, TypeError, RecursionError) as error:
            log.debug("The cached reply %s cannot be used: %s", key[:12], type(error).__name__)
            return None
        log.debug("The reply of %s comes from the cache (%s)", model, key[:12])
        return reply

    def put(self, model: str, request: dict[str, Any], reply: dict[str, Any]) -> None:
        """Keep a reply."""
        kept = [model, reply]
        if self.sanitiser.value(kept) != kept:
            log.debug("The reply of %s holds something secret and is not cached", model)
            return
        key = _key(model, request)
        data = json.dumps({"key": key, "model": model, "reply": reply}, ensure_ascii=False).encode("utf-8", "replace")
        try:
            self._write(f"{key}.json", data)
        except (OSError, StoreError) as error:
            log.warning("A reply could not be cached in %s: %s", self.directory, error)

    def _write(self, name: str, data: bytes) -> None:
        temporary = f".{name}.{os.getpid()}.{threading.get_ident()}"  # several may have asked the same
        with directory_handle(self.directory) as place:
            fd = create_file(temporary, place)
            try:
                write_all(fd, data)
            except OSError:
                os.unlink(temporary, dir_fd=place)
                raise
            finally:
                os.close(fd)
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)


def _key(model: str, request: dict[str, Any]) -> str:
    asked = json.dumps([model, request], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(asked.encode()).hexdigest()
