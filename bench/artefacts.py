"""A scene for strings on their way out: one store, and everything that leaves it or is made of it.

`Scene.carry` takes what the channels put in along every way out: exports, a backup, a restore, copies to other stores,
archives, the search index, the commands that show tasks, and the windows that a model would be sent. `Scene.found`
says which needles are left in all of that: in files, SQLite pages and write-ahead logs, archives, text inside base64,
the messages of shadow repositories, log lines, and what was printed or sent.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import io
import json
import logging
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orihon
from orihon.cli import main
from orihon.engine import Engine
from orihon.ops.export import FORMATS
from orihon.ops.formats.original import FIELD
from orihon.records import Metadata
from orihon.settings.schema import Settings
from orihon.task.task import Task

RUN = 8  # so many characters of a secret in a row count as a leak
SMALL_BYTES = 2000
SHOWN = 2  # tasks of a channel
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
_OTHER = re.compile(r"[^A-Za-z0-9_.]+")


class Needle(NamedTuple):
    """A secret, and the channel that it went into."""

    channel: str
    kind: str
    secret: str


class Leak(NamedTuple):
    """A secret that was found, and where."""

    channel: str
    kind: str
    place: str


class Scene:
    """A directory with a store in it; `note` keeps what was printed, logged or sent."""

    def __init__(
        self, url: str, place: Path, *, kinds: str = "[all]", copies: Iterable[str] = (), shown: int = SHOWN
    ) -> None:
        self.url, self.place, self.copies, self._shown = url, place, list(copies), shown
        self.work = place / "work"
        self.work.mkdir(parents=True)
        config = f"masking:\n  kinds: {kinds}\n" if kinds != "[all]" else ""
        (self.work / "config.yaml").write_text(f"{config}context_storage:\n  base_dir: {url}\n", "utf-8")
        with contextlib.chdir(self.work):
            self.settings: Settings = orihon.load_settings()
        self.engine: Engine = orihon.open(url, settings=self.settings)
        self.notes: dict[str, list[str]] = {}
        self.shown: dict[str, list[str]] = {}  # by channel: the tasks that the commands show
        self.tasks: list[Task] = []
        self._number = 0
        self._handler = _Lines(self.note)
        self._log = logging.getLogger("orihon")
        self._level = self._log.level
        self._log.addHandler(self._handler)
        self._log.setLevel(logging.DEBUG)

    def note(self, where: str, text: str) -> None:
        """Keep something that left the process without a file."""
        self.notes.setdefault(where, []).append(text)

    def put(self, channel: str, put: Callable[[Scene, list[str]], None], texts: list[str]) -> None:
        """Let a channel put its texts in."""
        before = {row.uuid for row in self.engine.store.find()}
        put(self, texts)
        made = [row.uuid for row in self.engine.store.find() if row.uuid not in before]
        self.shown[channel] = made[: self._shown]

    def key(self) -> str:
        """A task key that no other task has."""
        self._number += 1
        return f"local/bench/issue/task-{self._number}"

    def task(self, **options: Any) -> Task:
        """A new task on a key of its own, with a first request."""
        task = self.engine.start(self.key(), **options)
        task.add("user", "Do it.")
        self.tasks.append(task)
        return task

    def send(self, task: Task) -> None:
        """The window that the model would be sent, in every format."""
        window = task.window()
        for name in ("openai", "anthropic", "gemini", "responses"):
            self.note(f"model ({name})", json.dumps(getattr(window, name)(), ensure_ascii=False, default=str))
        self.note("model (tools)", json.dumps(window.tools(), ensure_ascii=False))

    def command(self, *arguments: str) -> int:
        """Run `orihon` in the directory of the scene; what it prints is kept."""
        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        code = 0
        with contextlib.chdir(self.work), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                main(list(arguments))
            except SystemExit as end:
                code = int(end.code or 0)
            except Exception:  # noqa: BLE001 - with --debug; the interpreter would show it
                sys.excepthook(*sys.exc_info())
                sys.excepthook = sys.__excepthook__
        said = printed.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
        self.note(f"screen (orihon {arguments[0]})", said)
        return code

    # the ways out

    def carry(self) -> None:
        """Take everything along every way out."""
        for task in self.tasks:
            with contextlib.suppress(orihon.OrihonError):
                task.close()
        chosen = {uuid for uuids in self.shown.values() for uuid in uuids}
        for row in list(self.engine.store.find()):
            if row.uuid in chosen:
                self._show(row.uuid, row.task_key, row.task_type)
        self.command("ls", "--json", "--limit", "1000", "--store", self.url)
        self.command("search", "do", "--json", "--limit", "1000", "--store", self.url)
        self.command("stats", "--json", "--store", self.url)
        self.command("audit", "--json", "--store", self.url)
        self.command("doctor", "--json", "--store", self.url)
        self.command("monitor", "--once", "--json", "--store", self.url)
        self.command("backup", str(self.place / "backup"), "--store", self.url)
        self.command("restore", str(self.place / "backup"), "--store", str(self.place / "restored"))
        for number, copy in enumerate(self.copies):
            self.command("copy", self.url, copy.format(place=self.place, number=number))
        if self.engine.store.archives:
            self._archive()

    def _show(self, uuid: str, key: str, kind: str) -> None:
        everything = ["--messages", "--summaries", "--tools", "--events", "--plan", "--full", "--json"]
        self.command("show", uuid, *everything, "--store", self.url)
        self.command("show", uuid, "--store", self.url)
        self.command("show", uuid, "--window", "--store", self.url)
        self.command("similar", uuid, "--json", "--store", self.url)
        self.command("inherit", key, "--json", "--store", self.url)
        metadata = next(self.engine.store.read(uuid, Metadata))
        formats = ["portable", *FORMATS, *(["conversation"] if kind == "conversation" else [])]
        for name in formats if FIELD in metadata.unknown else [one for one in formats if one != "original"]:
            output = str(self.place / f"{uuid}.{name}")
            self.command("export", uuid, "--format", name, "-o", output, "--store", self.url)

    def _archive(self) -> None:
        for row in self.engine.store.find():
            if row.status in {"completed", "stopped", "failed"}:
                self.engine.store.archive(row.uuid, fence=row.fence)

    def close(self) -> None:
        """Let go of the store."""
        self.engine.close()
        self._log.removeHandler(self._handler)
        self._log.setLevel(self._level)

    # what is left

    def found(self, needles: Iterable[Needle]) -> list[Leak]:
        """The needles that are still to be found, and where."""
        plain, folded = _grams(needles)
        leaks: dict[Leak, None] = {}
        seen: set[bytes] = set()
        for place, data in self.artefacts():
            for form in _forms(data):
                if form in seen:
                    continue
                seen.add(form)
                for needle in {*_hits(form, plain), *_hits(form.lower(), folded)}:
                    leaks[Leak(needle.channel, needle.kind, place)] = None
        return list(leaks)

    def artefacts(self) -> Iterator[tuple[str, bytes]]:
        """Everything that left the process, by the name of its place."""
        for where, texts in self.notes.items():
            yield where, "\n".join(texts).encode("utf-8", "surrogatepass")
        for path in sorted(self.place.rglob("*")):
            if path.is_file() and not _is_of_git(path):
                yield _named(path, self.place), path.read_bytes()
                yield f"the name of {_named(path, self.place)}", os.fsencode(path.name)
        yield from self._tables() if self.url.startswith("postgresql:") else ()
        for path in sorted(self.place.rglob("HEAD")):
            messages = ["git", "--git-dir", str(path.parent), "log", "--all", "--format=%B"]
            yield "shadow repository", subprocess.run(messages, capture_output=True, check=False).stdout  # noqa: S603

    def _tables(self) -> Iterator[tuple[str, bytes]]:
        import psycopg  # noqa: PLC0415 - the other stores do without

        with psycopg.connect(self.url) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
            for (name,) in names:
                for row in connection.execute(f"SELECT * FROM {name}"):  # type: ignore[arg-type] # noqa: S608
                    texts = (value if isinstance(value, bytes) else str(value).encode() for value in row)
                    yield f"table {name}", b"\n".join(texts)


class _Lines(logging.Handler):
    """Keeps every line of the log, formatted as a handler would write it."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__()
        self._note = note
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"log ({record.levelname.lower()})", self.format(record))


def _is_of_git(path: Path) -> bool:
    """Whether a file belongs to a shadow repository, whose files are not masked, on purpose."""
    return any((parent / "HEAD").exists() and (parent / "objects").is_dir() for parent in path.parents)


def _named(path: Path, place: Path) -> str:
    """A place without the ids in it: all tasks have the same files."""
    parts = path.relative_to(place).parts
    return "/".join(re.sub(r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f-]{27}", "*", part) for part in parts)


def _forms(data: bytes) -> Iterator[bytes]:
    """The bytes, what is compressed in them, and the texts inside base64."""
    data = _unpacked(data)
    yield data
    inside = [raw for run in _BASE64.findall(data) if (raw := _decoded(run))]
    if inside:
        yield b"\n".join(inside)
    if len(data) <= SMALL_BYTES:
        yield base64.b64encode(data)


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError, zlib.error):
            return gzip.decompress(data)
    return data


def _decoded(run: bytes) -> bytes:
    plain = run.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        raw = base64.b64decode(plain + b"=" * (-len(plain) % 4))
    except binascii.Error:
        return b""
    return raw.replace(b"\0", b"") if raw else b""  # UTF-16 counts as well


Grams = dict[bytes, Needle]


def _grams(needles: Iterable[Needle]) -> tuple[Grams, Grams]:
    """Every run of a secret, and of how a key would spell it; a run that two secrets share tells nothing."""
    plain: dict[bytes, set[Needle]] = {}
    folded: dict[bytes, set[Needle]] = {}
    for needle in needles:
        for grams, text in ((plain, needle.secret), (folded, _OTHER.sub("-", needle.secret).lower())):
            for at in range(max(1, len(text) - RUN + 1)):
                grams.setdefault(text[at : at + RUN].encode(), set()).add(needle)
    return _telling(plain), _telling(folded)


def _telling(grams: dict[bytes, set[Needle]]) -> Grams:
    return {gram: next(iter(owners)) for gram, owners in grams.items() if len(owners) == 1}


def _hits(data: bytes, grams: Grams) -> Iterator[Needle]:
    for size in {len(gram) for gram in grams}:
        for at in range(len(data) - size + 1):
            needle = grams.get(data[at : at + size])
            if needle is not None:
                yield needle
