"""`orihon run`: work on a text, a file or an issue until it is done."""

from __future__ import annotations

import uuid as uuids
from typing import Any

import click
import msgspec

from orihon.agent import queue
from orihon.agent.run_setup import RunSetup, resume_run
from orihon.agent.targets import parse_target
from orihon.cli.jobs import given, job, job_options
from orihon.cli.live import Live
from orihon.cli.output import say, say_error, say_json
from orihon.engine import Engine
from orihon.errors import NotFound, OrihonError, RunError, UsageError
from orihon.ops.access import AccessGate
from orihon.records import Message, TaskRow
from orihon.settings.load import load
from orihon.task.lifecycle import can_resume, check_resume

INTERRUPTED = 130


@click.command()
@click.argument("what", metavar="TEXT|FILE|URL", required=False)
@job_options
@click.option("--resume", "uuid", metavar="UUID", help="Go on with a task that was paused; its beginning is enough.")
@click.option("--json", "as_json", is_flag=True, help="At the end one object on standard output instead of the answer.")
@click.pass_context
def run(context: click.Context, /, what: str | None, uuid: str | None, *, as_json: bool, **options: Any) -> None:
    """Work on a text, a Markdown file, or an issue, pull or merge request, until it is done.

    What happens is shown on standard error, the answer is printed on standard output. Ctrl-C pauses the task. The exit
    code is 0 when it is completed, 5 when it is not, 130 or 143 when it was interrupted.

    \b
    orihon run "Why does test_total fail?" --no-plan
    orihon run issues/login.md --approve edits
    orihon run https://github.com/acme/shop/issues/27 --plan --approve all
    orihon run "Mend the shop" --model ollama:qwen3 --max-calls 50 --seconds 600
    orihon run --resume 550e8400
    """
    if (what is None) == (uuid is None):
        raise UsageError(
            "Say what to work on, or which task to resume.", hint="`orihon run TEXT|FILE|URL`, or `--resume UUID`."
        )
    settings = load()
    gate = AccessGate(settings, options["store"], command="run")
    options["user"] = gate.owner_for(options["user"])
    with gate.open_engine() as engine, Live() as live:
        found = engine.row(uuid) if uuid else None
        name = found.uuid if found else str(uuids.uuid4())
        try:
            if found is not None:
                row = _resumed(engine, found, options, live)
            else:
                row = _started(engine, str(what), name, options, live)
        except (KeyboardInterrupt, SystemExit) as error:
            live.clear()
            row = _row(engine, name, error)
            _print(engine, row, as_json=as_json)
            say_error("paused", f"`orihon run --resume {row.uuid[:8]}` goes on.")
            context.exit(error.code if isinstance(error, SystemExit) else INTERRUPTED)  # type: ignore[arg-type]
        live.clear()
        _print(engine, row, as_json=as_json)
        if row.status != "completed":
            raise RunError(f"Task {row.uuid[:8]} {row.status}: {row.error_message or row.reason}", hint=_hint(row))


def _started(engine: Engine, what: str, uuid: str, options: dict[str, Any], live: Live) -> TaskRow:
    target = parse_target(what, engine.settings)
    made = job(options, request=target.request, file=target.file)
    with RunSetup(
        engine, target.key, made, user=options["user"], uuid=uuid, on_step=live.watch, **_asking(live)
    ) as setup:
        work = setup.load_work()
        if work.user == options["user"]:
            return setup.handler.handle(work)
    # the settings are those of whoever asked for it
    with RunSetup(engine, target.key, made, user=work.user, uuid=uuid, on_step=live.watch, **_asking(live)) as setup:
        return setup.handler.handle(work)


def _resumed(engine: Engine, row: TaskRow, options: dict[str, Any], live: Live) -> TaskRow:
    check_resume(row)  # before a model and its key are asked for
    stored = queue.load_job(engine, row.uuid) or job(options)
    changed = msgspec.structs.replace(stored, queued=False, **given(options))
    with RunSetup(engine, row.key, changed, user=row.user, on_step=live.watch, **_asking(live)) as setup:
        return resume_run(setup, row)


def _asking(live: Live) -> dict[str, Any]:
    return {"ask": live.ask, "ask_user": live.ask_user} if live.can_ask else {}


def _row(engine: Engine, uuid: str, interrupt: BaseException) -> TaskRow:
    """The task that was interrupted; if there is none yet, there is nothing to resume."""
    try:
        return engine.row(uuid)
    except NotFound:
        raise interrupt from None


def _print(engine: Engine, row: TaskRow, *, as_json: bool) -> None:
    answer = _answer(engine, row)
    if not as_json:
        if row.status == "completed":
            say(answer)
        return
    shown = {
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
    say_json(shown)


def _answer(engine: Engine, row: TaskRow) -> str:
    """The model's last words."""
    try:
        newest = list(engine.store.read(row.uuid, Message, first=-20))
    except OrihonError:
        return ""
    said = (one.text for one in reversed(newest) if one.role == "assistant" and not one.tool_calls and one.text.strip())
    return next(said, "")


def _hint(row: TaskRow) -> str:
    if can_resume(row):
        return f"`orihon run --resume {row.uuid[:8]}` goes on."
    return "Nothing is lost: a new run on the same thing inherits what this one learned."
