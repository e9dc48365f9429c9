"""What a conversation is called: a name of the person's, in one directory."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from orihon.codec import clean_text
from orihon.errors import UsageError
from orihon.ingest import shown
from orihon.task_key import TaskKey

TYPE = "conversation"
MAX_CHARS = 100

_FITS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}[A-Za-z0-9_\-]|[A-Za-z0-9]", re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9_\-]+", re.ASCII)


def key_of(directory: Path, name: str) -> TaskKey:
    """The key of a conversation; names that a key cannot hold are known by the hash of what is stored of them."""
    return TaskKey(task_source="local", repo=place_of(directory), task_type=TYPE, task_id=_id_of(shown(checked(name))))


def place_of(directory: Path) -> str:
    """One directory, told from others of the same name; masked, before it is cut and hashed."""
    whole = Path(*map(shown, directory.resolve().parts))
    short = _OTHER.sub("-", whole.name)[:40].strip("-") or "root"
    return f"{short}-{_hash(str(whole))}".lower()


def checked(name: str) -> str:
    """A name in one line, not too long."""
    name = clean_text(name).strip()
    if not name or len(name) > MAX_CHARS or not name.isprintable():
        raise UsageError(
            f"A conversation cannot be called {name[:MAX_CHARS]!a}.",
            hint=f"Give one line of up to {MAX_CHARS} characters.",
        )
    return name


def _id_of(name: str) -> str:
    return name if _FITS.fullmatch(name) else f"named-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
