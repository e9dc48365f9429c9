"""A store whose files or rows were changed by somebody else: every command shows what can be shown, or says why not.

One broken task never hides the others, nothing ends in a traceback, and nothing hangs. `make test-deep` tries more.
"""

import json
import random
import shutil
import sqlite3

import pytest
from click.testing import CliRunner

import orihon
from orihon.cli import cli
from orihon.errors import OrihonError
from orihon.settings.schema import Settings
from support.hostile_files import KEY, UUID, fill, reply
from support.mutations import DEEP, WRONG, changed, dumped, places, removed

HEALTHY = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
MOST = 40 if DEEP else 3
COMMANDS = [
    ["ls"], ["ls", "--json"], ["show", UUID], ["show", UUID, "--json"], ["show", UUID, "--window"],
    ["show", UUID, "--messages", "--summaries", "--tools", "--events", "--plan", "--full"], ["search", "word"],
    ["stats"], ["similar", HEALTHY], ["similar", UUID], ["export", UUID, "-o", "-", "--format", "markdown"],
    ["export", UUID, "-o", "-", "--format", "conversation"], ["export", UUID, "-o", "x.orihon", "--force"], ["doctor"],
    ["inherit", KEY], ["monitor", "--once"], ["chat", "--list"], ["chat", "--search", "word"], ["backup", "backups"],
    ["compact", UUID], ["keep", UUID], ["copy", "{url}", "copied"], ["stop", UUID], ["doctor", "--fix"], ["clean"],
]  # fmt: skip
COLUMN = [None, "", 0, -1, 1.5, 1e308, 2**63 - 1, "NaN", "x" * 100_000, b"\xff\x00", b"", "[]", "\x00", "-1", "9" * 400]


@pytest.fixture(scope="module", params=["jsonl", "sqlite"])
def base(request, tmp_path_factory):
    """A store with a task that has everything, and a small healthy one; its URL as a function of its directory."""
    place = tmp_path_factory.mktemp("base")

    def url(where):
        return str(where / "contexts") if request.param == "jsonl" else f"sqlite:///{where}/contexts.db"

    with orihon.open(url(place), settings=Settings()) as engine:
        fill(engine, place)
        with engine.start(KEY, uuid=HEALTHY, user="alice") as task:
            task.add("user", "a healthy word")
            task.add_reply(reply("fine"))
    return place, url, request.param


@pytest.mark.slow
def test_any_value_may_be_wrong(base, tmp_path, monkeypatch):
    """In a file of the task, or in a column of its row."""
    place, url, kind = base
    rolled = random.Random(1)
    changes = list(_changes_of_files(place) if kind == "jsonl" else _changes_of_rows(place))
    for number, (what, change) in enumerate(rolled.sample(changes, min(MOST, len(changes)))):
        here = tmp_path / str(number)
        shutil.copytree(place, here)
        monkeypatch.chdir(here)
        if not change(here):
            continue
        if kind == "jsonl" and rolled.random() < 0.5:
            for path in (here / "contexts").glob("tasks.db*"):
                path.unlink()
        for command in COMMANDS:
            _run(command, url(here), what)
        shown = _run(["show", HEALTHY, "--messages"], url(here), what)
        assert "a healthy word" in shown, what
        shutil.rmtree(here)


def _run(command, url, what):
    given = [part.replace("{url}", url) for part in command] + ([] if command[0] == "copy" else ["--store", url])
    done = CliRunner().invoke(cli, given, env={"ORIHON_USER": None, "ORIHON_TOKEN": None})
    if done.exception is not None and not isinstance(done.exception, SystemExit | OrihonError):
        raise AssertionError((what, command)) from done.exception
    return done.output


def _changes_of_files(place):
    """Every value of every kind of line in every file of the task."""
    (task,) = (place / "contexts").glob(f"*/{UUID}")
    for path in sorted(path for path in task.rglob("*.json*") if path.is_file() and not path.name.startswith(".")):
        seen = set()
        texts = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        lines = [json.loads(text) for text in texts]
        for number, line in enumerate(lines):
            kind = line.get("type") or line.get("role")
            if kind in seen and kind != "note":
                continue
            seen.add(kind)
            for where in places(line):
                for wrong in range(len(WRONG) + 1):
                    yield (
                        f"{path.name} {number} {where} {wrong}",
                        _file_change(path.relative_to(place), lines, number, where, wrong),
                    )


def _file_change(path, lines, number, where, wrong):
    def change(here):
        if wrong == len(WRONG) and not where:
            return False
        line = removed(lines[number], where) if wrong == len(WRONG) else changed(lines[number], where, WRONG[wrong])
        made = [*lines[:number], line, *lines[number + 1 :]]
        (here / path).write_bytes("".join(f"{dumped(one)}\n" for one in made).encode("utf-8", "surrogatepass"))
        return True

    return change


def _changes_of_rows(place):
    with sqlite3.connect(place / "contexts.db") as connection:
        names = [column[1] for column in connection.execute("PRAGMA table_info(tasks)")]
    connection.close()
    for name in names:
        for value in COLUMN:
            yield f"{name} = {value!r:.40}", _row_change(name, value)


def _row_change(name, value):
    def change(here):
        connection = sqlite3.connect(here / "contexts.db")
        try:
            connection.execute(f'UPDATE tasks SET "{name}" = ? WHERE uuid = ?', (value, UUID))  # noqa: S608
            connection.commit()
        except sqlite3.Error:  # a column that the database itself keeps right
            return False
        finally:
            connection.close()
        return True

    return change


@pytest.mark.parametrize(
    ("column", "value"), [("status", "gone"), ("total_tokens", -1), ("fence", 1.5), ("kept", "maybe"), ("uuid", "../x")]
)
def test_one_broken_row_hides_no_other(tmp_path, column, value, caplog):
    """A column that cannot be read has its default; a row that is none is left out; a warning says so."""
    url = f"sqlite:///{tmp_path}/contexts.db"
    with orihon.open(url, settings=Settings()) as engine:
        for uuid in (UUID, HEALTHY):
            with engine.start(KEY, uuid=uuid) as task:
                task.add("user", "word")
    connection = sqlite3.connect(tmp_path / "contexts.db")
    connection.execute(f"UPDATE tasks SET {column} = ? WHERE uuid = ?", (value, UUID))  # noqa: S608
    connection.commit()
    connection.close()
    with orihon.open(url, settings=Settings()) as engine:
        found = [row.uuid for row in engine.tasks()]
    assert HEALTHY in found
    assert (UUID in found) == (column not in {"status", "uuid"})
    assert "row" in caplog.text
