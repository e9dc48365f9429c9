"""`orihon run` and `orihon resume`: work on a text, a file or an issue until it is done."""

from __future__ import annotations

import sys
import threading
import uuid as uuids
from collections.abc import Sequence
from typing import Any, Self

import click
import msgspec

from orihon.agent import queue
from orihon.agent.control import pause_files
from orihon.agent.loop import Step
from orihon.agent.run_setup import RunSetup, resume_run
from orihon.agent.targets import parse_target
from orihon.agent.tools.approval import escape_question
from orihon.chat.registry import TYPE as CONVERSATION
from orihon.cli._command import Session, complete_uuid, store_command, uuid_argument
from orihon.cli._output import say, say_error, say_json, say_line
from orihon.cli._progress import Progress
from orihon.cli._run_options import build_job, run_options, select_job_fields
from orihon.engine import Engine
from orihon.errors import NotFound, OrihonError, RunError, UsageError
from orihon.records import Message, TaskRow
from orihon.task.lifecycle import can_resume, check_resume
from orihon.terminal import shorten

INTERRUPTED = 130
MAX_STEP_CHARS = 160


@store_command(json="One object at the end, on standard output, instead of the answer.")
@click.argument("what", metavar="TEXT|FILE|URL", required=False)
@run_options()
@click.option(
    "--resume",
    "uuid",
    metavar="UUID",
    shell_complete=complete_uuid,
    help="Continue this paused task. A prefix of the id is enough.",
)
def run(session: Session, /, what: str | None, uuid: str | None, **options: Any) -> int:
    """Work on a text, a Markdown file, or an issue, pull or merge request, until it is done.

    Progress is shown on standard error, the answer is printed on standard output. Ctrl-C pauses the task. The exit
    code is 0 if the task is completed, 5 if not, and 130 or 143 if it was interrupted.

    \b
    orihon run "Why does test_total fail?" --no-plan
    orihon run issues/login.md --approve edits
    orihon run https://github.com/acme/shop/issues/27 --plan --approve all
    orihon run "Fix the shop" --model ollama:qwen3 --max-calls 50 --seconds 600
    orihon run --resume 550e8400
    """
    if (what is None) == (uuid is None):
        raise UsageError(
            "Name what to work on, or the task to resume.", hint="`orihon run TEXT|FILE|URL`, or `--resume UUID`."
        )
    return _run(session, what, uuid, options)


def _run(session: Session, what: str | None, uuid: str | None, options: dict[str, Any]) -> int:
    options["user"] = session.gate.owner_for(options["user"])
    engine = session.engine
    with RunDisplay() as display:
        previous = engine.row(uuid) if uuid else None
        name = previous.uuid if previous else str(uuids.uuid4())
        try:
            if previous is not None:
                row = _resume(engine, previous, options, display)
            else:
                row = _start(engine, str(what), name, options, display)
        except (KeyboardInterrupt, SystemExit) as error:
            display.clear()
            row = _find_interrupted(engine, name, error)
            _print_result(session, row)
            say_error("paused", f"`orihon run --resume {row.uuid[:8]}` continues.")
            return error.code if isinstance(error, SystemExit) else INTERRUPTED  # type: ignore[return-value]
    _print_result(session, row)
    if row.status != "completed":
        raise RunError(f"Task {row.uuid[:8]} {row.status}: {row.error_message or row.reason}", hint=_hint(row))
    return 0


@store_command(json="One object at the end, on standard output, instead of the answer.")
@uuid_argument
@run_options()
def resume(session: Session, /, uuid: str, **options: Any) -> int:
    """Continue a task here: one that was paused, whose process died, or that is queued.

    A file that asks this task to pause is removed first. The command is the same as `orihon unpause UUID` and then
    `orihon run --resume UUID`; the options override those of the task.

    \b
    orihon resume 550e8400
    orihon resume 550e8400 --model anthropic:claude-sonnet-5 --approve edits
    """
    row = session.authorized.row(uuid)
    session.authorized.record_access("task", ["row"], uuid=row.uuid)
    for path in pause_files(session.settings.pause_resume, row.uuid)[1:]:
        path.unlink(missing_ok=True)
    return _run(session, None, row.uuid, options)


def _start(engine: Engine, what: str, uuid: str, options: dict[str, Any], display: RunDisplay) -> TaskRow:
    target = parse_target(what, engine.settings)
    job = build_job(options, request=target.request, file=target.file)
    with RunSetup(engine, target.key, job, user=options["user"], uuid=uuid, **display.callbacks) as setup:
        work = setup.load_work()
        if work.user == options["user"]:
            return setup.handler.handle(work)
    # the source names another user, whose settings apply
    with RunSetup(engine, target.key, job, user=work.user, uuid=uuid, **display.callbacks) as setup:
        return setup.handler.handle(work)


def _resume(engine: Engine, row: TaskRow, options: dict[str, Any], display: RunDisplay) -> TaskRow:
    if row.task_type == CONVERSATION:
        hint = f"`orihon chat --resume {row.uuid[:8]}` continues it."
        raise UsageError(f"Task {row.uuid[:8]} is a conversation.", hint=hint)
    check_resume(row)  # before the model is opened, which needs its key
    stored = queue.load_job(engine, row.uuid) or build_job(options)
    job = msgspec.structs.replace(stored, queued=False, **select_job_fields(options))
    with RunSetup(engine, row.key, job, user=row.user, **display.callbacks) as setup:
        return resume_run(setup, row)


def _find_interrupted(engine: Engine, uuid: str, interrupt: BaseException) -> TaskRow:
    """Return the row of the interrupted task. Raise the interrupt again if the task does not exist yet."""
    try:
        return engine.row(uuid)
    except NotFound:
        raise interrupt from None


def _print_result(session: Session, row: TaskRow) -> None:
    answer = _find_answer(session.engine, row)
    if not session.as_json:
        if row.status == "completed":
            say(answer)
        return
    say_json(
        {
            "uuid": row.uuid,
            "task_key": row.task_key,
            "status": row.status,
            "reason": row.reason,
            "error": row.error_message,
            "answer": answer,
            "llm_calls": row.llm_call_count,
            "tool_calls": row.tool_call_count,
            "tokens": row.total_tokens,
            "resumable": can_resume(row),
        }
    )


def _find_answer(engine: Engine, row: TaskRow) -> str:
    """Return the last text of the model."""
    try:
        newest = list(engine.store.read(row.uuid, Message, first=-20))
    except OrihonError:
        return ""
    answers = (message.text for message in reversed(newest) if message.role == "assistant" and not message.tool_calls)
    return next((text for text in answers if text.strip()), "")


def _hint(row: TaskRow) -> str:
    if can_resume(row):
        return f"`orihon run --resume {row.uuid[:8]}` continues."
    if row.status == "failed":
        return "A failed run is not inherited: a new run with the same key starts without it."
    return "Nothing is lost: a new run with the same key inherits what this one learned."


class RunDisplay:
    """Shows a run on standard error: one changing line on a terminal, plain lines in a pipe."""

    def __init__(self) -> None:
        self._line = Progress() if sys.stderr.isatty() else None
        self._turn, self._action = "", ""
        self._lock = threading.RLock()

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks of a RunSetup. Questions are asked only at a terminal."""
        can_ask = self._line is not None and sys.stdin is not None and sys.stdin.isatty()
        return {"on_step": self.show_step} | ({"ask": self.ask, "ask_user": self.ask_user} if can_ask else {})

    def show_step(self, step: Step) -> None:
        """Show one step of the run."""
        if step.kind == "text":
            return
        with self._lock:
            if step.kind == "turn":
                self._turn, self._action = _format_turn(step), "the model answers"
            elif step.kind in {"call", "note"}:
                self._action = shorten(escape_question(step.text), MAX_STEP_CHARS)
            elif step.is_error:
                self._action = f"failed: {shorten(escape_question(step.text), MAX_STEP_CHARS)}"
            if self._line is not None:
                if step.kind == "note" or step.is_error:
                    self.clear()
                    say_line(self._action, err=True)
                self._line.show_line(" · ".join(filter(None, (self._turn, self._action))))
            elif step.kind == "turn":
                say_line(self._turn, err=True)
            elif step.kind in {"call", "note"} or step.is_error:
                say_line(f"  {self._action}" if step.kind != "note" else self._action, err=True)

    def clear(self) -> None:
        """Remove the line before other output."""
        if self._line is not None:
            self._line.clear()

    def ask(self, question: str) -> bool:
        """Ask whether the model may do something."""
        return self._read_answer(f"{question}\nAllow this? [y/N] ").lower() in {"y", "yes"}

    def ask_user(self, questions: Sequence[str]) -> str | None:
        """Ask the questions of the model. Return None if there is no answer."""
        return self._read_answer("\n".join([*map(escape_question, questions), "> "])) or None

    def _read_answer(self, question: str) -> str:
        self.clear()
        say(question, err=True, nl=False)
        return sys.stdin.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


def _format_turn(step: Step) -> str:
    """Return `execution · turn 3 · 4,500 of 128,000 tokens (system 300, messages 4,200) · 2 folded`."""
    sources = ", ".join(f"{name} {tokens:,}" for name, tokens in step.by_source.items() if tokens)
    size = f"{step.tokens:,} of {step.limit:,} tokens" + (f" ({sources})" if sources else "")
    folded = f"{step.folded:,} folded" if step.folded else ""
    return " · ".join(filter(None, (step.phase, f"turn {step.turn}", size, folded)))
