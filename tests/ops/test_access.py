"""Who sees what, and that it is written down."""

import json

import pytest

import orihon
from orihon import TaskKey
from orihon.agent.tools.shell import filter_environ
from orihon.errors import AccessDenied, NotFound, SettingsError, UsageError
from orihon.ops.access import AuthorizedStore, Principal, open_authorized_store, principal
from orihon.settings.schema import Access, Settings
from orihon.settings.section import Secret
from orihon.stores.audit import open_audit
from orihon.stores.base import Query
from support.cli_store import KINDS

IDS = {"alice": "aaaaaaaa-0000-4000-8000-00000000000a", "bob": "aaaaaaaa-0000-4000-8000-00000000000b"}
ALICE, BOB, ROOT = Principal("alice"), Principal("bob"), Principal("root", admin=True)


@pytest.fixture(params=KINDS)
def engine(request, url_at, tmp_path):
    with orihon.open(url_at(request.param, tmp_path), settings=Settings()) as engine:
        for user in ("alice", "bob"):
            with engine.start(TaskKey.local(user), user=user, uuid=IDS[user]) as task:
                task.add("user", f"the work of {user}")
        yield engine


def authorized(engine, who, command="test"):
    return AuthorizedStore(engine.store, who, command=command, audit=open_audit(engine.store))


def test_a_user_sees_only_his_own(engine):
    mine = authorized(engine, ALICE)
    assert [row.user for row in mine.rows()] == ["alice"]
    assert list(mine.rows(Query(user="bob"))) == []
    assert mine.row("aaaa").uuid == IDS["alice"], "another's task makes a beginning not ambiguous"
    with pytest.raises(NotFound):
        mine.row(IDS["bob"])
    with pytest.raises(NotFound):
        mine.reader(IDS["bob"])


def test_an_administrator_sees_all(engine):
    assert {row.user for row in authorized(engine, ROOT).rows()} == {"alice", "bob"}
    with pytest.raises(UsageError, match="Several"):
        authorized(engine, ROOT).row("aaaa")


def test_each_look_is_written_down_and_masked(engine):
    looking = authorized(engine, BOB, command="show")
    looking.reader(IDS["bob"])
    looking.record_access(
        "search", ["messages"], query="password=hunter2hunter2 sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
    )
    written = list(open_audit(engine.store).lines())
    lines = [json.loads(line) for line in written]
    assert [(line["user"], line["through"], line["at"]) for line in lines] == [
        ("bob", "show", "task"),
        ("bob", "show", "search"),
    ]
    assert lines[0]["uuid"] == IDS["bob"]
    assert b"sk-ant" not in b"".join(written)
    path = engine.store.sidecar_path("audit.jsonl")
    assert not path.exists() or path.stat().st_mode & 0o777 == 0o600


def test_who_it_is_without_tokens():
    """The caller is trusted: the environment names the user, else it is the owner of the files."""
    settings = Settings(access=Access(admins=("root",)))
    assert principal(settings, {"ORIHON_USER": "alice"}) == ALICE
    assert principal(settings, {"ORIHON_USER": "root"}) == ROOT
    assert principal(settings, {}).admin, "on one machine the owner of the files sees all"
    for empty in ("", " "):
        with pytest.raises(UsageError, match="not a user name"):
            principal(settings, {"ORIHON_USER": empty})
    with pytest.raises(AccessDenied, match=r"not in `access\.tokens`"):
        principal(settings, {"ORIHON_TOKEN": "a-token-that-nobody-asked-for"})


def test_who_it_is_with_tokens():
    """Nothing but a token counts, and only one that is configured."""
    tokens = {"alice": Secret("a-long-token"), "root": Secret("r"), "nobody": Secret("")}
    settings = Settings(access=Access(admins=("root",), tokens=tokens))
    assert principal(settings, {"ORIHON_TOKEN": "a-long-token", "ORIHON_USER": "root"}) == ALICE, "the token counts"
    assert principal(settings, {"ORIHON_TOKEN": "r"}) == ROOT
    for environ in (
        *({}, {"ORIHON_USER": "root"}, {"ORIHON_USER": "alice"}, {"ORIHON_TOKEN": ""}),
        *({"ORIHON_TOKEN": "wrong"}, {"ORIHON_TOKEN": "a-long-toke"}, {"ORIHON_TOKEN": "\udcff"}),
    ):
        with pytest.raises(AccessDenied, match="token"):
            principal(settings, environ)
    with pytest.raises(AccessDenied):
        principal(settings, {"ORIHON_TOKEN": "r"}, token="")


def test_no_program_that_is_started_gets_the_token():
    """Neither the shell of an agent nor what it runs."""
    assert "ORIHON_TOKEN" not in filter_environ({"ORIHON_TOKEN": "a-long-token", "PATH": "/bin"})


def test_a_token_of_two_users_is_nobodys():
    """Settings that give two users one token are refused, and the token is not printed."""
    settings = Settings(access=Access(tokens={"alice": Secret("the-same"), "bob": Secret("the-same")}))
    with pytest.raises(SettingsError, match="same token") as refused:
        principal(settings, {"ORIHON_TOKEN": "the-same"})
    assert "the-same" not in f"{refused.value}{refused.value.hint}"


def test_only_an_administrator_may(engine):
    authorized(engine, ROOT).require_admin("read the audit")
    with pytest.raises(UsageError, match="administrator may read the audit"):
        authorized(engine, ALICE).require_admin("read the audit")


def test_a_desk_makes_no_store(tmp_path):
    with pytest.raises(NotFound):
        open_authorized_store(Settings(), tmp_path / "nowhere", command="ls")
    assert not (tmp_path / "nowhere").exists()
