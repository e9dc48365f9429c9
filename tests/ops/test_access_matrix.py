"""Every operation of the library and every command, for the owner, another user, an administrator and nobody.

Tokens are configured, so that a caller is who the token says. Whatever is not in the matrix fails a test here, so a new
method or command has to say who may use it.
"""

import inspect
import json
import os

import pytest
from click.testing import CliRunner

import orihon
from orihon.agent import queue
from orihon.agent.queue import Job
from orihon.chat import registry
from orihon.cli import COMMANDS, cli
from orihon.errors import AccessDenied, NotFound, OrihonError, UsageError
from orihon.records import Message
from orihon.settings.schema import Access, Settings
from orihon.settings.section import Secret
from orihon.stores import open_store
from orihon.stores.audit import open_audit
from orihon.stores.lookup import find_row
from orihon.task_key import TaskKey
from support.cli_store import KINDS, said

# Mallory has two tasks whose ids begin with Alice's id, and all three begin with the same letter
ALICE = "abc"
MALLORY = ("abc1", "abc2")
KEY, SECRET = "local/issue/notes", "the-quarterly-figures"
TALK = "talk-of-alice"
TOKENS = {"alice": "alice-token-0001", "mallory": "mallory-token-0002", "boss": "boss-token-0003"}
CONFIG = "access:\n  admins: [boss]\n  tokens:\n" + "".join(f"    {who}: {token}\n" for who, token in TOKENS.items())
ROLES = ("alice", "mallory", "boss", None)

YES, GONE, DENIED, NOTHING = "yes", "not found", "denied", "nothing"


def settings():
    tokens = {user: Secret(token) for user, token in TOKENS.items()}
    return Settings(access=Access(admins=("boss",), tokens=tokens))


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path, monkeypatch):
    """One task of Alice's and a conversation of hers, and two tasks of Mallory's."""
    url = url_at(request.param, tmp_path)
    for name in ("ORIHON_TOKEN", "ORIHON_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with orihon.open(url, settings=Settings()) as engine:
        with engine.start(KEY, user="alice", uuid=ALICE) as task:
            task.add("user", SECRET)
            task.add_reply({"choices": [{"message": {"role": "assistant", "content": f"done: {SECRET}"}}]})
        for uuid in MALLORY:
            with engine.start("local/issue/other", user="mallory", uuid=uuid) as task:
                task.add("user", "mine")
        conversation = registry.start(engine, tmp_path, name=TALK, user="alice", uuid="talk")
        conversation.task.add("user", SECRET)
        conversation.task.pause()
    (tmp_path / "config.yaml").write_text(CONFIG)
    return url


def opened(url, who, **more):
    return orihon.open(url, settings=settings(), token=TOKENS.get(who), **more)


def outcome(act):
    """What an operation comes to: it is allowed, finds nothing, or is refused."""
    try:
        found = act()
    except NotFound:
        return GONE
    except AccessDenied:
        return DENIED
    except UsageError as error:
        return "ambiguous" if "Several" in error.message else f"{error}"
    return NOTHING if found in (None, [], "", False) else YES


# the library: an operation on Alice's task; what it comes to for Alice, Mallory and the boss
LIBRARY = {
    "tasks": (lambda e, _: [row for row in e.tasks() if row.uuid == ALICE], (YES, NOTHING, YES)),
    "tasks(user=alice)": (lambda e, _: list(e.tasks(user="alice")), (YES, NOTHING, YES)),
    "tasks(key)": (lambda e, _: list(e.tasks(key=KEY)), (YES, NOTHING, YES)),
    "rows": (lambda e, _: list(e.rows(orihon.stores.base.Query(user="alice"))), (YES, NOTHING, YES)),
    "row": (lambda e, _: e.row(ALICE).user == "alice", (YES, "ambiguous", YES)),
    "row(talk)": (lambda e, _: e.row("talk").user == "alice", (YES, GONE, YES)),
    "row(beginning)": (lambda e, _: e.row("tal").user == "alice", (YES, GONE, YES)),
    "read": (lambda e, _: list(e.read("talk").messages()), (YES, GONE, YES)),
    "read.window": (lambda e, _: e.read("talk").window().messages, (YES, GONE, YES)),
    "resume": (lambda e, _: e.resume("talk").close() or True, (YES, GONE, YES)),
    "start(user=alice)": (lambda e, _: _started(e, user="alice"), (YES, DENIED, YES)),
    "start": (lambda e, _: _started(e) in {"alice", "boss"}, (YES, NOTHING, YES)),
    "session(user=alice)": (lambda e, _: _held(e, user="alice"), (YES, DENIED, YES)),
    "session": (lambda e, _: _held(e) in {"alice", "boss"}, (YES, NOTHING, YES)),
    "inheritance(user=alice)": (lambda e, _: e.inheritance(KEY, user="alice"), (YES, DENIED, YES)),
    "inheritance": (lambda e, _: e.inheritance(KEY), (YES, NOTHING, NOTHING)),  # by its user only
    "registry.list_conversations": (registry.list_conversations, (YES, NOTHING, YES)),
    "registry.list_conversations(user=alice)": (
        lambda e, p: registry.list_conversations(e, p, user="alice"),
        (YES, NOTHING, YES),
    ),
    "registry.find": (lambda e, p: registry.find(e, p, TALK), (YES, GONE, YES)),
    "registry.find(id)": (lambda e, p: registry.find(e, p, "talk"), (YES, GONE, YES)),
    "registry.search": (lambda e, p: list(registry.search(e, SECRET, p)), (YES, NOTHING, YES)),
    "registry.resume": (lambda e, _: registry.resume(e, "talk").task.close() or True, (YES, GONE, YES)),
    "registry.delete": (lambda e, _: registry.delete(e, "talk") or True, (YES, GONE, YES)),
    "queue.enqueue(user=alice)": (lambda e, _: _queued(e, user="alice"), (YES, DENIED, YES)),
    "queue.load_job": (lambda e, _: queue.load_job(e, "talk") is None, (YES, GONE, YES)),
    "queue.stop_idle_task": (lambda e, _: queue.stop_idle_task(e, "talk", "no"), (YES, GONE, YES)),
    "queue.claim": (lambda e, _: queue.claim(e, "talk"), (YES, NOTHING, YES)),
    "queue.has_open_task": (lambda e, p: queue.has_open_task(e, registry.make_key(p, TALK)), (YES, NOTHING, YES)),
    "queue.iter_waiting": (lambda e, _: list(queue.iter_waiting(e)), (NOTHING, NOTHING, NOTHING)),
    "queue.recover": (lambda e, _: queue.recover(e, "alice"), (NOTHING, NOTHING, NOTHING)),
}  # fmt: skip


def _started(engine, **options):
    task = engine.start("local/issue/new", **options)
    task.close()
    return task.row.user


def _held(engine, **options):
    with engine.session("channel 7", **options) as task:
        return task.row.user


def _queued(engine, **options):
    return queue.enqueue(engine, TaskKey.parse("local/issue/q"), Job(request="x"), **options)


ONCE = {"registry.delete", "queue.stop_idle_task", "queue.claim"}  # what is done cannot be done again


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library(url, tmp_path, name):
    """What a user may not see does not exist, and what a user may not do is refused."""
    act, expected = LIBRARY[name]
    found = []
    for who in ("mallory", "alice") if name in ONCE else ("mallory", "boss", "alice"):
        with opened(url, who) as engine:
            found.append((who, outcome(lambda: act(engine, tmp_path))))
    assert dict(found) == {who: dict(zip(ROLES, expected, strict=False))[who] for who, _ in found}
    with pytest.raises(AccessDenied):
        opened(url, None)


def test_every_method_of_the_engine_is_in_the_matrix():
    """A new public method says here who may use it."""
    free = {"close", "open_leased", "record_refusal"}  # one needs a lease, which nobody gets here
    methods = {name for name, _ in inspect.getmembers(orihon.Engine, inspect.isfunction) if not name.startswith("_")}
    assert methods - free <= {name.split("(")[0] for name in LIBRARY}


def test_a_wrong_way_to_open(url):
    """Neither a name, nor a wrong or empty token, nor the environment of the process opens the store."""
    for token in ("", "wrong", TOKENS["boss"][:-1], "alice"):
        with pytest.raises(AccessDenied):
            orihon.open(url, settings=settings(), token=token)
    for user in ("boss", "alice", None):
        with pytest.raises(AccessDenied):
            orihon.open(url, settings=settings(), user=user)
    with pytest.raises(AccessDenied, match="cannot act for"):
        orihon.open(url, settings=settings(), user="alice", token=TOKENS["mallory"])
    with pytest.raises(UsageError, match="not a user name"):
        orihon.open(url, settings=Settings(), user="")


def test_an_empty_token_is_not_that_of_the_process(url, monkeypatch):
    """A service that passes on an empty token does not lend its own."""
    monkeypatch.setenv("ORIHON_TOKEN", TOKENS["boss"])
    with pytest.raises(AccessDenied):
        orihon.open(url, settings=settings(), token="")
    with orihon.open(url, settings=settings()) as engine:
        assert engine.user is None


def test_new_tasks_are_the_users_own(url):
    """Without a user, a task that is started through a user's engine is that user's."""
    with opened(url, "mallory") as engine:
        assert _started(engine) == "mallory"
    with opened(url, "boss", user="mallory") as engine:
        assert _started(engine) == "mallory"


def test_no_store_is_made_for_a_caller_without_access(tmp_path):
    """A refused caller leaves nothing behind."""
    with pytest.raises(AccessDenied):
        orihon.open(tmp_path / "new", settings=settings())
    assert not (tmp_path / "new").exists()


def test_one_lookup_for_engine_and_commands(url, tmp_path):
    """The whole id wins over the tasks whose ids begin with it, everywhere."""
    token = {"ORIHON_TOKEN": TOKENS["boss"]}
    with opened(url, "boss") as engine:
        assert engine.row(ALICE).uuid == ALICE
    assert json.loads(said("show", ALICE, "--json", url=url, **token))["row"]["uuid"] == ALICE
    said("backup", "backups", url=url, **token)
    said("copy", url, f"{tmp_path}/copied", "--task", ALICE, **token)
    with open_store(f"{tmp_path}/copied") as store:
        assert [row.uuid for row in store.find()] == [ALICE]
    said("restore", "backups", ALICE, "--store", f"{tmp_path}/restored", **token)
    with open_store(f"{tmp_path}/restored") as store:
        assert [row.uuid for row in store.find()] == [ALICE]
    for weird in ("../..", "\udcff", "a b", "%", "*", "abc\0"):
        with opened(url, "boss") as engine, pytest.raises(NotFound):
            engine.row(weird)
    with opened(url, "boss") as engine, pytest.raises(UsageError):
        find_row(engine.store, "")


# the commands: their arguments, and what they come to for Alice, Mallory and the boss
COMMAND_MATRIX = {
    "audit": [([], (DENIED, DENIED, YES))],
    "backup": [(["{place}/b", "talk"], ("refused", GONE, "refused"))],  # it has not ended
    "chat": [
        (["--list"], (YES, YES, YES)),
        (["--delete", "nothing"], (GONE, GONE, GONE)),
        (["--resume", "nothing"], (GONE, GONE, GONE)),
        (["--search", SECRET], (YES, YES, YES)),
        (["--user", "alice", "--list"], (YES, DENIED, YES)),
    ],
    "clean": [(["--dry-run"], (YES, YES, YES))],
    "compact": [(["talk"], (YES, GONE, YES))],
    "config": None,
    "copy": [(["{url}", "{place}/copy"], (DENIED, DENIED, YES))],
    "demo": None,
    "doctor": [([], (DENIED, DENIED, YES))],
    "enqueue": [(["x", "--user", "alice"], (YES, DENIED, YES))],
    "export": [([ALICE, "-o", "-"], (YES, "refused", YES)), (["talk", "-o", "-"], (YES, GONE, YES))],
    "import": [(["{place}/chat.jsonl", "--user", "alice"], (YES, DENIED, YES))],
    "inherit": [([KEY, "--user", "alice"], (YES, YES, YES))],
    "init": None,
    "keep": [(["talk"], (YES, GONE, YES))],
    "ls": [(["--user", "alice"], (YES, YES, YES))],
    "migrate": [(["{url}"], (DENIED, DENIED, "any"))],
    "monitor": [(["--once"], (DENIED, DENIED, "any"))],
    "pause": [(["talk"], (YES, GONE, YES)), (["--all"], (DENIED, DENIED, YES))],
    "restore": [
        (["{place}/backups", ALICE], (YES, "refused", YES)),
        (["{place}/backups", "nothing"], (GONE, GONE, GONE)),
    ],
    "resume": [(["nothing"], (GONE, GONE, GONE))],
    "run": [(["--resume", "nothing"], (GONE, GONE, GONE)), (["x", "--user", "boss"], (DENIED, DENIED, "any"))],
    "search": [([SECRET], (YES, YES, YES))],
    "show": [(["talk", "--messages"], (YES, GONE, YES)), ([ALICE], (YES, "refused", YES))],
    "similar": [(["talk"], (YES, GONE, YES))],
    "stats": [(["--user", "alice"], (YES, YES, YES))],
    "unkeep": [(["talk"], (YES, GONE, YES))],
    "unpause": [(["talk"], (YES, GONE, YES)), (["--all"], (DENIED, DENIED, YES))],
    "view": [(["nothing", "--no-browser"], (GONE, GONE, GONE))],  # tests/view has what the pages show
    "worker": [(["--once"], (DENIED, DENIED, YES))],
    "stop": [(["talk"], (YES, GONE, YES))],
}
CODES = {YES: {0}, GONE: {3}, DENIED: {2}, "refused": {2}, "any": {0, 1, 2, 4, 5}}


def test_every_command_is_in_the_matrix():
    """A new command says here who may use it."""
    assert set(COMMAND_MATRIX) == set(COMMANDS)


@pytest.mark.slow
def test_the_commands(url, tmp_path):
    """Another user learns nothing, and without a token no command touches the store."""
    (tmp_path / "chat.jsonl").write_text('{"role": "user", "content": "hello"}\n')
    said("backup", "backups", url=url, ORIHON_TOKEN=TOKENS["boss"])
    for name, cases in COMMAND_MATRIX.items():
        for arguments, expected in cases or ():
            meant = dict(zip(ROLES, (*expected, DENIED), strict=True))
            for who in ("mallory", None, "alice", "boss"):
                if (name, who) != ("stop", "boss"):  # Alice has stopped it
                    _try(name, arguments, who, meant[who], url=url, place=tmp_path)


def _try(name, arguments, who, meant, *, url, place):
    given = [part.format(url=url, place=place) for part in arguments]
    given += [] if name in {"copy", "migrate"} else ["--store", url]
    before = len(lines(url))
    shown, code = _run(name, *given, ORIHON_TOKEN=TOKENS.get(who))
    assert code in CODES[meant], (name, arguments, who, shown)
    _check_audit(name, arguments, who, meant, lines(url)[before:])
    assert not any(token in shown for token in TOKENS.values())
    if who in {"mallory", None}:
        assert SECRET not in shown.replace(" ".join(arguments), ""), (name, who, shown)
        assert TALK not in shown, (name, who, shown)
        assert name != "copy" or not os.path.lexists(place / "copy")
    if who is None:
        assert "token" in shown, (name, shown)


WRITES_ONLY = {"enqueue", "pause", "unpause"}  # a new task, and with --all a file that is no part of the store


def _check_audit(name, arguments, who, meant, added):
    """Every command that reads or refuses leaves a line that names the user and what was read or refused."""
    what = (name, arguments, who, added)
    assert all(line.get("denied", False) != bool(line.get("read")) for line in added), what
    assert all((line["user"], line["through"]) == (who or "", name) for line in added if line["at"] != "token"), what
    if meant in {DENIED, GONE, "refused"} and (who != "boss" or meant == DENIED):
        assert any(line.get("denied") or name == "backup" for line in added), what
    elif meant == YES and not (name in WRITES_ONLY and ("--all" in arguments or name == "enqueue")):
        assert any(line.get("read") or line.get("denied") for line in added), what


def _run(*arguments, **environ):
    """What a command prints, and its exit code."""
    env = {"ORIHON_USER": None, "TZ": "UTC", "LC_ALL": "C.UTF-8"} | environ
    done = CliRunner().invoke(cli, arguments, env=env)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return done.output, done.exit_code
    error = done.exception
    return f"{done.output}{error} {getattr(error, 'hint', '')}", getattr(error, "exit_code", 70)


def lines(url):
    with open_store(url) as store:
        return [json.loads(line) for line in open_audit(store).lines()]


def test_what_was_refused_is_in_the_audit(url):
    """A wrong token, no token, another's task, another's name and a command for administrators; never a token."""
    for environ in ({}, {"ORIHON_TOKEN": "wrong-token-9999"}, {"ORIHON_TOKEN": None, "user": "boss"}):
        said("ls", url=url, code=2, **environ)
    mallory = {"ORIHON_TOKEN": TOKENS["mallory"]}
    said("show", "talk", url=url, code=3, **mallory)
    said("doctor", url=url, code=2, **mallory)
    said("enqueue", "x", "--user", "alice", url=url, code=2, **mallory)
    with pytest.raises(AccessDenied):
        opened(url, None)
    with pytest.raises(AccessDenied):
        opened(url, "mallory", user="alice")
    with opened(url, "mallory") as engine:
        for act in (lambda: engine.row("talk"), lambda: engine.start(KEY, user="alice")):
            with pytest.raises(OrihonError):
                act()
    denied = [(line["user"], line["through"], line["at"]) for line in lines(url) if line.get("denied")]
    assert denied == [
        *[("", "ls", "token")] * 3,
        ("mallory", "show", "task"),
        ("mallory", "doctor", "look at all of a store"),
        ("mallory", "enqueue", "start"),
        ("", "library", "open"),
        ("mallory", "library", "open"),
        ("mallory", "library", "task"),
        ("mallory", "library", "start"),
    ]
    boss = {"ORIHON_TOKEN": TOKENS["boss"]}
    shown = said("audit", url=url, **boss) + said("audit", "--json", url=url, **boss)
    assert "mallory  show: task talk denied" in shown
    everything = shown + json.dumps(lines(url))
    assert not any(token in everything for token in (*TOKENS.values(), "wrong-token-9999"))


def test_a_conversation_or_a_backup_of_another_user_is_refused_in_the_audit(url):
    """So are lists, figures, copies and examinations: nobody looks without a line."""
    said("backup", "backups", url=url, ORIHON_TOKEN=TOKENS["boss"])
    mallory, boss = {"ORIHON_TOKEN": TOKENS["mallory"]}, {"ORIHON_TOKEN": TOKENS["boss"]}
    seen = len(lines(url))
    said("chat", "--resume", "talk", "--plain", url=url, code=3, **mallory)
    said("restore", "backups", "abcd", url=url, code=3, **mallory)
    said("copy", url, "copied", **boss)
    said("doctor", url=url, **boss)
    for arguments in (["ls"], ["stats"], ["search", SECRET]):
        said(*arguments, url=url, **boss)
    found = [(line["user"], line["through"], line["at"], line.get("uuid"), line.get("read"), line.get("denied", False))
             for line in lines(url)[seen:]]  # fmt: skip
    assert found == [
        ("mallory", "chat", "conversation", "talk", None, True),
        ("mallory", "restore", "task", "abcd", None, True),
        ("boss", "copy", "copy", None, ["everything"], False),
        ("boss", "doctor", "doctor", None, ["everything"], False),
        ("boss", "ls", "tasks", None, ["rows"], False),
        ("boss", "stats", "statistics", None, ["totals"], False),
        ("boss", "search", "search", None, ["messages", "summaries", "tools"], False),
    ]


def test_each_line_says_what_was_read(url):
    """Messages, summaries, window, export and search can be told apart."""
    token = {"ORIHON_TOKEN": TOKENS["alice"]}
    for arguments in (["show", ALICE], ["show", ALICE, "--messages"], ["show", ALICE, "--window", "--tools"],
                      ["show", ALICE, "--follow"], ["export", ALICE, "-o", "-"], ["similar", ALICE],
                      ["inherit", KEY], ["search", SECRET]):  # fmt: skip
        said(*arguments, url=url, **token)
    with opened(url, "alice") as engine:
        engine.read(ALICE)
    assert [(line["at"], line.get("read"), line.get("format"), line.get("text")) for line in lines(url)] == [
        ("task", ["row", "messages", "summaries"], None, None),
        ("task", ["row", "messages"], None, None),
        ("task", ["row", "tools", "window"], None, None),
        ("task", ["row", "messages"], None, None),
        ("export", ["everything"], "portable", None),
        ("task", ["messages", "summary"], None, None),
        ("inheritance", ["summary"], None, None),
        ("search", ["messages", "summaries", "tools"], None, SECRET),
        ("task", ["everything"], None, None),
    ]  # fmt: skip
    shown = said("audit", url=url, ORIHON_TOKEN=TOKENS["boss"])
    assert f"export: export {ALICE} everything" in shown
    assert SECRET in shown


def test_an_imported_task_cannot_read_another_users_run(url):
    """What a file says that it inherited from is not believed: recall reads only what the task may inherit."""
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/mine", user="mallory", uuid="mine")
        task.writer.event("note", frozen={"inherited_from": ALICE})
        task.pause()
    with opened(url, "mallory") as engine:
        task = engine.resume("mine")
        assert SECRET not in task.recall(SECRET, of="previous")
        with pytest.raises(UsageError, match="inherited_from"):
            task.reconfigure(inherited_from=ALICE)
        task.writer.event("note", frozen={"inherited_from": ALICE})
        assert SECRET not in task.recall(SECRET, of="previous")
        task.pause()
    with opened(url, "alice") as engine:
        with engine.start(KEY) as task:
            task.add("user", "again")
            assert "done" in task.recall("done", of="previous")
        assert any(SECRET in one.text for one in engine.store.read(ALICE, Message))
