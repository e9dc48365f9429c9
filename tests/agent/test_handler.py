"""One task from its request to its end: every way that it can end, and who hears of it."""

import logging

import pytest

import orihon
from orihon.agent.control import (
    ASSIGNED,
    COMMENTS_SECONDS,
    Drain,
    make_comment_check,
    make_pause_check,
    make_stop_check,
    pause_files,
)
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import Limits, Loop, PauseRequested, StopRequested
from orihon.agent.models.errors import is_overflow
from orihon.agent.sources import Comment
from orihon.errors import ContextOverflow, ModelError, SourceError
from orihon.records import Event, Issue, Message
from orihon.settings.schema import PauseResume, Planning, ProgressComment, Settings, TaskStop
from orihon.testing import ScriptedModel

KEY = orihon.TaskKey.github("acme", "shop", issue=27)
PULL = orihon.TaskKey.github("acme", "shop", pull_request=28)
SCHEMAS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
LOOK = {"say": "I look.", "call": [{"name": "look", "arguments": {}}]}


class Scripted:
    """A script as a model."""

    def __init__(self, *replies):
        self.script = ScriptedModel(list(replies))

    def reply(self, window, *, on_text=None):  # noqa: ARG002
        return self.script(window.openai(), tools=window.tools() or None)

    @property
    def windows(self):
        return [request.messages for request in self.script.requests]


class Tools:
    """One tool; it fails as often as it is told to."""

    schemas = SCHEMAS

    def __init__(self, *results):
        self.results = list(results)

    def run(self, _):
        result = self.results.pop(0) if self.results else "fine"
        if isinstance(result, Exception):
            raise result
        return result


class Heard:
    """A source that remembers what it was told."""

    def __init__(self, *, comments=(), wanted=True, broken=False, linked=None):
        self.comments, self.wanted, self.broken, self.found = list(comments), wanted, broken, linked
        self.marks, self.said, self.edits, self.asked = [], [], {}, []

    def _answer(self):
        if self.broken:
            raise SourceError("The forge is down.", retryable=True)

    def mark(self, key, outcome):
        self._answer()
        self.marks.append((str(key), outcome))

    def add_comment(self, _, text):
        self._answer()
        self.said.append(text)
        return str(len(self.said))

    def edit_comment(self, _, comment_id, text):
        self._answer()
        self.edits.setdefault(comment_id, []).append(text)

    def list_comments(self, _, since):
        self._answer()
        return [one for one in self.comments if one.updated_at >= since]

    def is_wanted(self, _, *, was_assigned=None):
        self.asked.append(was_assigned)
        return self.wanted

    def find_linked(self, _):
        self._answer()
        return self.found

    @property
    def outcomes(self):
        return [outcome for _, outcome in self.marks]


@pytest.fixture
def settings(tmp_path):
    return Settings(
        pause_resume=PauseResume(signal_file=str(tmp_path / "pause")),
        planning=Planning(progress_comment=ProgressComment(enabled=False)),
    )


@pytest.fixture
def engine(settings):
    with orihon.open("memory:", settings=settings) as engine:
        yield engine


def handled(engine, *replies, tools=None, work=None, **options):
    model = Scripted(*replies)
    handler = TaskHandler(engine, model, tools or Tools(), **options)
    return handler.handle(work or Work(key=KEY, request="The total is wrong.")), model


def texts(engine, row, role="user"):
    return [message.text for message in engine.store.read(row.uuid, Message) if message.role == role]


# the ends


def test_done(engine):
    """System prompt, request, tools, answer; completed, and the labels came once each."""
    heard = Heard()
    row, model = handled(engine, LOOK, "Done.", source=heard)
    assert (row.status, row.llm_call_count, row.tool_call_count) == ("completed", 2, 1)
    assert heard.outcomes == ["processing", "done"]
    assert model.windows[0][0]["role"] == "system"
    assert model.windows[0][1]["content"] == "The total is wrong."


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(calls=2), "limit: calls"), (Limits(tokens=100), "limit: tokens"), (Limits(seconds=0.0), "timeout"),
     (Limits(cost=0.001, input_price=1000.0), "limit: cost")],
)  # fmt: skip
def test_limits_fail(engine, limits, reason):
    """Whichever limit is reached: failed with it, never completed."""
    heard = Heard()
    usage = {"usage": {"prompt_tokens": 90, "completion_tokens": 20}}
    row, _ = handled(engine, LOOK | usage, LOOK | usage, LOOK | usage, limits=limits, source=heard)
    assert (row.status, row.reason) == ("failed", reason)
    assert "limit" in row.error_message
    assert heard.outcomes == ["processing", "failed"]


def test_the_settings_limit_the_calls():
    """max_llm_process_num counts where nothing else is said."""
    with orihon.open("memory:", settings=Settings(max_llm_process_num=1)) as engine:
        row, _ = handled(engine, LOOK, "Done.")
    assert (row.reason, row.llm_call_count) == ("limit: calls", 1)


def test_a_tool_that_keeps_failing(engine):
    """Three failures of one tool in a row end the task; two, and one that works in between, do not."""
    broken = [OSError("no disk")] * 2
    row, _ = handled(engine, LOOK, LOOK, LOOK, LOOK, LOOK, "Done.", tools=Tools(*broken, "fine", *broken))
    assert row.status == "completed"
    row, _ = handled(engine, LOOK, LOOK, LOOK, "Done.", tools=Tools(*broken, OSError("no disk")))
    assert (row.status, row.reason, row.llm_call_count) == ("failed", "ToolError", 3)
    assert "look failed 3 times in a row: OSError: no disk" in row.error_message


def test_empty_replies(engine):
    """The model is told; after the third it has failed."""
    row, model = handled(engine, "", "Done.")
    assert row.status == "completed"
    assert "empty" in model.windows[1][-1]["content"]
    row, _ = handled(engine, "", "", "", "Done.")
    assert (row.status, row.reason) == ("failed", "ModelError")
    assert "empty reply 3 times" in row.error_message


def cut(text):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}]}


def test_cut_replies(engine):
    """A text that broke off is no answer: the model is asked to go on, and the pieces are one text."""
    with engine.start(KEY) as task:
        task.add("user", "Write.")
        model = Scripted(cut("One, "), cut("two, "), "three.")
        assert Loop(task, model, Tools()).run_until_done() == "One, two, three."
    assert "Go on exactly where it broke off" in model.windows[1][-1]["content"]
    row, _ = handled(engine, *[cut("and ")] * 5)
    assert (row.status, row.reason) == ("failed", "ModelError")
    assert "cut 5 times" in row.error_message


@pytest.mark.parametrize("reply", [cut("One, "), ""], ids=["cut", "empty"])
def test_a_crash_after_a_reply_that_is_none(engine, monkeypatch, reply):
    """What broke off, or said nothing, is no answer either when the process died before it could ask for more."""
    task = engine.start(KEY, tools=SCHEMAS)
    task.add("user", "Write.")
    said = type(task).add

    def die(task, role, *about, **options):
        if role == "user":
            task.writer.lease.close()
            raise KeyboardInterrupt
        return said(task, role, *about, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(task), "add", die)
        Loop(task, Scripted(reply), Tools()).run_until_done()
    model = Scripted("two.")
    row = TaskHandler(engine, model, Tools()).resume(task.uuid)
    assert (row.status, row.llm_call_count) == ("completed", 2)
    wanted = "Go on exactly where" if reply else "Your last reply was empty"
    assert wanted in model.windows[0][-1]["content"]


def test_overflow_is_folded_harder(engine):
    """A window that is too long for the provider is made again, shorter; the task goes on."""
    tools = Tools("line\n" * 4000)
    refused = ContextOverflow("prompt is too long")
    assert is_overflow("prompt is too long")
    row, model = handled(engine, LOOK, refused, "Done.", tools=tools, options={"context_length": 20_000})
    assert row.status == "completed"
    sizes = [sum(len(str(one["content"])) for one in window) for window in model.windows]
    assert sizes[2] < sizes[1]


def test_a_provider_that_is_away(engine):
    """What may work later is a pause that can be resumed; what never will is a failure."""
    heard = Heard()
    row, _ = handled(engine, LOOK, ModelError("It is overloaded.", retryable=True), source=heard)
    assert (row.status, row.reason) == ("paused", "It is overloaded.")
    assert heard.outcomes == ["processing", "paused"]
    again = TaskHandler(engine, Scripted("Done."), Tools(), source=heard)
    assert again.resume(row.uuid).status == "completed"
    assert heard.outcomes == ["processing", "paused", "processing", "done"]
    row, _ = handled(engine, ModelError("There is no such model."))
    assert (row.status, row.reason) == ("failed", "ModelError")


def test_a_script_that_is_too_short(engine):
    """A run that a test got wrong has failed."""
    row, _ = handled(engine, LOOK)
    assert (row.status, row.reason) == ("failed", "ScriptError")


def test_a_bug_is_heard_of_and_raised(engine):
    """What nobody expected fails the task, is told, and is not hidden."""
    heard = Heard()
    with pytest.raises(ZeroDivisionError):
        handled(engine, ZeroDivisionError("odd"), source=heard)
    assert heard.outcomes == ["processing", "failed"]
    assert next(engine.tasks()).status == "failed"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupt_pauses(engine, interrupt):
    """Ctrl-C pauses, says so, and goes on its way."""
    heard = Heard()
    with pytest.raises(type(interrupt)):
        handled(engine, LOOK, interrupt, source=heard)
    row = next(engine.tasks())
    assert (row.status, row.reason) == ("paused", "interrupted")
    assert heard.outcomes == ["processing", "paused"]


# what is asked before each turn


def test_pause_files(engine, settings):
    """The file for all, or the task's own; only then, and it is not taken away."""
    everybody, own = pause_files(settings.pause_resume, "mine")
    for path in (everybody, own):
        path.touch()
        row, _ = handled(engine, LOOK, "Done.", work=Work(key=KEY, request="Go.", uuid="mine"))
        assert (row.status, row.reason) == ("paused", f"{path} is there")
        path.unlink()
        assert TaskHandler(engine, Scripted("Done."), Tools()).resume("mine").status == "completed"
        engine.store.delete("mine")
    own.touch()
    row, _ = handled(engine, "Done.", work=Work(key=KEY, request="Go.", uuid="other"))
    assert row.status == "completed"
    assert own.exists()


def test_the_pause_file_is_looked_for_as_often_as_the_settings_say(engine, tmp_path):
    """check_interval, and not at all when it is off."""
    place = tmp_path / "signal"
    place.touch()
    with engine.start(KEY) as task:
        make_pause_check(PauseResume(enabled=False, signal_file=str(place)))(task)
        check = make_pause_check(PauseResume(signal_file=str(place), check_interval=3))
        with pytest.raises(PauseRequested):
            check(task)
        check(task)
        check(task)
        with pytest.raises(PauseRequested):
            check(task)


def test_unassigned(engine):
    """A bot that was taken off its assignees stops; that it was there is known from the log, also after a resume."""
    heard = Heard(wanted=False)
    row, _ = handled(engine, "Done.", source=heard, work=Work(key=KEY, request="Go.", assigned=True))
    assert (row.status, row.reason) == ("stopped", "no longer assigned")
    assert heard.outcomes == ["processing", "stopped"]
    assert heard.asked == [True]
    heard = Heard()
    handled(engine, "Done.", source=heard)
    assert heard.asked == [None]  # the source knows better


def test_stop_is_not_asked_too_often(engine):
    """Every so many calls, and every so many seconds."""
    heard, seconds = Heard(), [0.0]
    check = make_stop_check(heard, TaskStop(min_check_interval_seconds=30), clock=lambda: seconds[0])
    with engine.start(KEY) as task:
        for at in (0.0, 10.0, 29.0, 30.0, 31.0):
            seconds[0] = at
            check(task)
        assert len(heard.asked) == 2
        heard.wanted, seconds[0] = False, 100.0
        with pytest.raises(StopRequested):
            check(task)


def comment(id, body, at):
    return Comment(id, "alice", body, f"2030-01-0{at}T00:00:00.000000Z", f"2030-01-0{at}T00:00:00.000000Z")


def test_comments(engine):
    """Those of the request are known; new ones and changed ones become messages, once."""
    known, seconds = comment("1", "first", 1), [0.0]
    heard = Heard(comments=[known])
    model = Scripted("Done.")
    work = Work(key=KEY, request="Go.", comments=(known,), read_at=known.updated_at)
    handler = TaskHandler(engine, model, Tools(), source=heard)
    task = engine.start(KEY)
    check = make_comment_check(heard, clock=lambda: seconds[0])
    with task:
        handler._add_request(task, work)
        for later in ([known], [known, comment("2", "second", 2)], [known, comment("2", "changed", 3)], heard.comments):
            heard.comments = later
            check(task)
            check(task)  # at once: nobody is asked
            seconds[0] += COMMENTS_SECONDS
        heard.broken = True
        check(task)
        said = [text for text in texts(engine, task.row) if text.startswith("New comment by alice")]
        assert [text.split()[-1] for text in said] == ["second", "changed"]
        # whoever resumes knows them too
        heard.broken = False
        make_comment_check(heard)(task)
        assert len([text for text in texts(engine, task.row) if text.startswith("New comment")]) == 2


def test_drained(engine):
    """A worker that is asked to stop pauses its tasks at the next turn."""
    drain = Drain()
    drain.requested = True
    row, _ = handled(engine, "Done.", checks=[drain])
    assert (row.status, row.reason) == ("paused", "drained")


# who hears of it


def test_a_forge_that_is_down_ends_nothing(engine, caplog):
    """Labels, comments and links are for people; the work goes on without."""
    with caplog.at_level(logging.WARNING, "orihon"):
        row, _ = handled(engine, LOOK, "Done.", source=Heard(broken=True))
    assert row.status == "completed"
    assert "could not be marked as processing" in caplog.text


def test_the_notice_of_an_inheritance_is_said_once(engine):
    """The second run says where it goes on from, when it begins and not when it is resumed."""
    handled(engine, "Done.")
    heard = Heard()
    row, _ = handled(engine, ModelError("Busy.", retryable=True), source=heard)
    assert len(heard.said) == 1
    TaskHandler(engine, Scripted("Done."), Tools(), source=heard).resume(row.uuid)
    assert len(heard.said) == 1


def test_links(engine):
    """The pull request that an issue became is kept, so that its first run inherits."""
    row, _ = handled(engine, "Done.", source=Heard(linked=PULL))
    assert row.linked_key == str(PULL)


def test_progress(tmp_path):
    """One comment, edited; it is known after a pause, and has the last words at the end."""
    with orihon.open("memory:", settings=Settings(pause_resume=PauseResume(signal_file=str(tmp_path / "p")))) as engine:
        heard = Heard()
        row, _ = handled(engine, LOOK, ModelError("Busy.", retryable=True), source=heard)
        TaskHandler(engine, Scripted("The total is right now."), Tools(), source=heard).resume(row.uuid)
    assert len(heard.said) == 1
    assert "The total is right now." in heard.edits["1"][-1]
    assert "**completed**" in heard.edits["1"][-1]
    assert "**paused: Busy.**" in heard.edits["1"][0]


def test_words_of_the_settings_join_the_system_prompt(tmp_path):
    """`system_prompt` comes after ours; what the work brings stands instead of ours."""
    settings = Settings(system_prompt="Answer in rhymes.", pause_resume=PauseResume(signal_file=str(tmp_path / "p")))
    with orihon.open("memory:", settings=settings) as engine:
        row, _ = handled(engine, "Done.")
        assert texts(engine, row, "system")[0].endswith("\n\nAnswer in rhymes.")
        row, _ = handled(engine, "Done.", work=Work(key=KEY, request="Go.", system="Be brief."))
        assert texts(engine, row, "system")[0] == "Be brief.\n\nAnswer in rhymes."


def test_notes_are_kept(engine):
    """What the work brings for whoever resumes is in the log."""
    work = Work(key=KEY, request="Go.", notes={"work": {"model": "x"}}, assigned=True)
    row, _ = handled(engine, "Done.", work=work, source=Heard())
    notes = [event.data for event in engine.store.read(row.uuid, Event) if "work" in event.data]
    assert (notes[0]["work"], notes[0][ASSIGNED]) == ({"model": "x"}, True)


def test_statistics_every_five_turns(engine, caplog):
    """`Context stats: 18 messages, ~4500 tokens`, for whoever debugs."""
    with caplog.at_level(logging.DEBUG, "orihon"):
        handled(engine, *[LOOK] * 10, "Done.")
    lines = [record.getMessage() for record in caplog.records if "Context stats" in record.getMessage()]
    assert len(lines) == 2
    assert "Context stats: 10 messages, ~" in lines[0]


# the matter of the request


def test_the_fields_of_an_issue_are_stored_and_summarised(engine):
    """The final summary tells what the issue says, and has nothing of the words around it."""
    body = "Wrong password gives a blank page instead of a sentence. Never touch prod.db."
    issue = Issue(title="Login is blank", body=body, latest="Add a test too.", author="alice", language="en")
    work = Work(key=KEY, request=f"AUTHOR: alice\n# TITLE\n> Login is blank\n# BODY\n> {body}", issue=issue)
    row, _ = handled(engine, "I guarded the lookup in auth/session.py.", work=work)
    stored = [message.issue for message in engine.store.read(row.uuid, Message)]
    assert [one for one in stored if one is not None] == [issue]
    for text in ("Login is blank", "Never touch prod.db.", "Add a test too."):
        assert text in row.final_summary
    assert "AUTHOR" not in row.final_summary
    assert "TITLE" not in row.final_summary


def test_the_language_of_the_request_is_that_of_the_run(engine):
    """What is inherited, the notice and the summary are in it, from the first message on."""
    source = Heard()
    for _ in range(2):
        issue = Issue(title="ログイン画面が白い", body="パスワードを間違えると白い画面になります。", language="ja")
        rendered = "TASK: github/acme/shop/issue/27\n# TITLE\n> ログイン画面が白い\n"
        work = Work(key=KEY, request=rendered * 3, issue=issue)
        row, _ = handled(engine, "Fixed.", source=source, work=work)
    assert engine.read(row.uuid).config.language == "ja"
    assert "過去のコンテキスト" in source.said[-1]
