"""Who sees what, and that it is written down."""

import json

import pytest

import orihon
from looks import KINDS
from orihon import TaskKey
from orihon.errors import NotFound, UsageError
from orihon.ops.access import Desk, Principal, opened_desk, principal
from orihon.ops.audit import audit_of
from orihon.section import Secret
from orihon.settings import Access, Settings
from orihon.stores.base import Query

IDS = {"alice": "aaaaaaaa-0000-4000-8000-00000000000a", "bob": "aaaaaaaa-0000-4000-8000-00000000000b"}
ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root", admin=True)


@pytest.fixture(params=KINDS)
def engine(request, url_at, tmp_path):
    with orihon.open(url_at(request.param, tmp_path), settings=Settings()) as engine:
        for user in ("alice", "bob"):
            with engine.start(TaskKey.local(user), user=user, uuid=IDS[user]) as task:
                task.add("user", f"the work of {user}")
        yield engine


def desk(engine, who, through="test"):
    return Desk(engine.store, who, through=through, audit=audit_of(engine.store))


def test_a_user_sees_only_his_own(engine):
    mine = desk(engine, ALICE)
    assert [row.user for row in mine.rows()] == ["alice"]
    assert list(mine.rows(Query(user="bob"))) == []
    assert mine.row("aaaa").uuid == IDS["alice"], "another's task makes a beginning not ambiguous"
    with pytest.raises(NotFound):
        mine.row(IDS["bob"])
    with pytest.raises(NotFound):
        mine.reader(IDS["bob"])


def test_an_administrator_sees_all(engine):
    assert {row.user for row in desk(engine, ROOT).rows()} == {"alice", "bob"}
    with pytest.raises(UsageError, match="Several"):
        desk(engine, ROOT).row("aaaa")


def test_each_look_is_written_down_and_masked(engine):
    looking = desk(engine, BOB, through="show")
    looking.reader(IDS["bob"])
    looking.looked("search", query="password=hunter2hunter2 sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789")
    written = list(audit_of(engine.store).lines())
    lines = [json.loads(line) for line in written]
    assert [(line["user"], line["through"], line["at"]) for line in lines] == [
        ("bob", "show", "task"),
        ("bob", "show", "search"),
    ]
    assert lines[0]["uuid"] == IDS["bob"]
    assert b"sk-ant" not in b"".join(written)
    path = engine.store.beside("audit.jsonl")
    assert not path.exists() or path.stat().st_mode & 0o777 == 0o600


def test_who_it_is():
    settings = Settings(access=Access(admins=("root",), tokens={"alice": Secret("a-long-token"), "root": Secret("r")}))
    assert principal(settings, {"ORIHON_USER": "alice"}) == ALICE
    assert principal(settings, {"ORIHON_USER": "root"}) == ROOT
    assert principal(settings, {"ORIHON_TOKEN": "a-long-token", "ORIHON_USER": "root"}) == ALICE, "the token counts"
    assert principal(settings, {}).admin, "on one machine the owner of the files sees all"
    with pytest.raises(UsageError, match="ORIHON_TOKEN"):
        principal(settings, {"ORIHON_TOKEN": "wrong"})


def test_only_an_administrator_may(engine):
    desk(engine, ROOT).require_admin("read the audit")
    with pytest.raises(UsageError, match="administrator may read the audit"):
        desk(engine, ALICE).require_admin("read the audit")


def test_a_desk_makes_no_store(tmp_path):
    with pytest.raises(UsageError):
        opened_desk(Settings(), tmp_path / "nowhere", through="ls")
    assert not (tmp_path / "nowhere").exists()
