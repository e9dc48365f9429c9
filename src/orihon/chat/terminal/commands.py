"""What the user types: messages and slash commands.

`COMMANDS` is the table of commands. To add one, add a function, a row, its `help` text in both languages, and its
arguments in `_complete_argument`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from orihon.agent.sticky_files import StickyChanges, StickyListing, StickyRow
from orihon.chat import document, registry
from orihon.chat.checkpoints import ENABLED, Checkpoint, Checkpoints
from orihon.chat.conversation import STOPPED
from orihon.chat.terminal.session import ChatSession, defer_interrupt, make_system_prompt
from orihon.chat.terminal.ui import format_listings
from orihon.chat.workspace_checkpoints import RestoreResult
from orihon.errors import LeaseLost, OrihonError, UsageError
from orihon.task.config import EXTRACTIVE
from orihon.terminal import format_duration

TRANSCRIPT_ENTRIES = 20
MAX_HEAD = 20  # columns of a command in the help
MAX_NAMES = 20  # of files in one line; the others are counted
MAX_CHECKPOINTS = 50  # in a list
MAX_COMPLETIONS = 200
MAX_SCANNED = 5000  # names in one directory
FORCE = "--force "
_TANGENT_END = re.compile(r"end(?:\s+(none|tail|summary))?")
_TANGENT_FROM = re.compile(r"from\s+(\S+)")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class Leave(Exception):
    """The user wants to leave."""


class Command(NamedTuple):
    """A slash command."""

    name: str
    arguments: str
    run: Callable[[ChatSession, str], None]


def run_session(chat: ChatSession) -> int:
    """Read lines until the user leaves; return the exit code, which in a pipe is that of the last error."""
    while True:
        try:
            run_line(chat, chat.ui.read(chat.meter.format_line()))
        except KeyboardInterrupt:
            if not chat.ui.interactive:
                raise
            chat.ui.note(chat.texts("how to leave"))
        except (EOFError, Leave):
            break
    chat.ui.note(chat.texts("left", name=chat.conversation.name))
    return 0 if chat.ui.interactive else chat.exit_code


def run_line(chat: ChatSession, line: str) -> None:
    """Run a command, or send a message."""
    if not line.strip():
        return
    try:
        if line.startswith("/"):
            _run_command(chat, line)
        else:
            chat.say(line)
    except LeaseLost:
        raise  # another process has the conversation now
    except OrihonError as error:
        chat.show_error(error)


def _run_command(chat: ChatSession, line: str) -> None:
    name, _, argument = line.strip().partition(" ")
    command = _BY_NAME.get(name)
    if command is None:
        message = chat.texts("unknown command", name=ascii(name)[1:-1][:40])
        raise UsageError(message, hint=chat.texts("unknown command hint"))
    command.run(chat, argument.strip())


# completion


def complete(chat: ChatSession, text: str) -> list[tuple[str, int]]:
    """Return completions of a text, each with the number of characters that it replaces at the end."""
    if not text.startswith("/"):
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        return [(path, len(word)) for path in complete_path(word, chat.directory)] if word else []
    name, space, argument = text.partition(" ")
    if not space:
        lines = [command.name for command in COMMANDS if command.name.startswith(name)]
    else:
        arguments = _complete_argument(chat, name, argument)
        lines = [f"{name} {full}" for full in arguments if full.startswith(argument)]
    return [(line, len(text)) for line in lines]


def complete_path(text: str, directory: Path) -> list[str]:
    """Return the paths that begin with a text; hidden files only if the name begins with a dot."""
    head, slash, tail = text.rpartition("/")
    try:
        names = sorted(islice(_scan(directory / Path(head + slash).expanduser(), tail), MAX_COMPLETIONS))
    except (OSError, ValueError, RuntimeError):  # not a directory, an invalid character, an unknown home
        return []
    return [f"{head}{slash}{name}" for name in names]


def _scan(directory: Path, prefix: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in islice(entries, MAX_SCANNED):
            matches = entry.name.startswith(prefix) and (prefix.startswith(".") or not entry.name.startswith("."))
            if matches and entry.name.isprintable():
                yield f"{entry.name}/" if entry.is_dir() else entry.name


def _complete_argument(chat: ChatSession, name: str, text: str) -> Iterable[str]:  # noqa: PLR0911 - one per command
    """Return full arguments of a command; those that do not match the typed text are left out later."""
    match name:
        case "/help":
            return [command.name for command in COMMANDS] + [command.name[1:] for command in COMMANDS]
        case "/save" | "/load":
            return complete_path(text, chat.directory)
        case "/resume":
            return [item.name for item in registry.list_conversations(chat.engine, chat.directory, user=chat.user)]
        case "/model":
            llm = chat.setup.settings.llm
            return [f"{name}:{getattr(llm, name).model}" for name in ("openai", "ollama", "lmstudio", "anthropic")]
        case "/tangent":
            ends = ["end", "end none", "end tail", "end summary"] if chat.conversation.is_in_tangent else []
            return [*ends, "from ", "back"]
        case "/checkpoint":
            points = chat.files.checkpoints.list_checkpoints() if chat.files.checkpoints is not None else []
            full = [f"{verb} {point.tag}" for verb in ("expand", "diff", "restore") for point in points]
            verbs = ["list", "expand", "diff", "restore", "clean", "on", "off"]
            return [*verbs, *full, *(f"restore {point.tag} --hard" for point in points)]
        case "/context":
            verb, space, path = text.partition(" ")
            entries = {"add": complete_path(path, chat.directory), "remove": chat.files.sticky.declared}.get(verb, ())
            return [f"{verb} {entry}" for entry in entries] if space else ["add ", "remove ", "show"]
    return ()


# commands that show something


def _help(chat: ChatSession, argument: str) -> None:
    commands = [command for command in COMMANDS if argument.lstrip("/") in {"", command.name[1:]}]
    heads = [f"{command.name} {command.arguments}".strip() for command in commands]
    width = min(max(map(len, heads), default=0), MAX_HEAD)
    lines = []
    for head, command in zip(heads, commands, strict=True):
        if len(head) > width:  # its text stands below
            lines.append(head)
            head = ""  # noqa: PLW2901 - it is shown
        lines.append(f"{head:<{width}}  {chat.texts(f'help {command.name}')}")
    chat.ui.show("\n".join(lines))


def _usage(chat: ChatSession, _: str) -> None:
    chat.ui.show("\n".join(chat.meter.format_table()))


def _transcript(chat: ChatSession, argument: str) -> None:
    limit = _parse_number(chat, argument) if argument else TRANSCRIPT_ENTRIES
    chat.ui.show("\n".join(chat.format_transcript(limit)) or chat.texts("empty"))


def _tools(chat: ChatSession, _: str) -> None:
    texts = chat.texts
    groups = {
        texts("mcp tools", server=server) if server else texts("builtin tools"): names
        for server, names in chat.setup.tools.origins().items()
    }
    groups[texts("engine tools")] = sorted(chat.conversation.task.config.engine_tools)
    chat.ui.show("\n".join(f"{origin}: {', '.join(names)}" for origin, names in groups.items()))


def _list(chat: ChatSession, _: str) -> None:
    listings = registry.list_conversations(chat.engine, chat.directory, user=chat.user)
    chat.ui.show(format_listings(listings, chat.texts, current=chat.conversation.conversation_id))


def _name(chat: ChatSession, _: str) -> None:
    conversation = chat.conversation
    chat.ui.show(chat.texts("name", name=conversation.name, uuid=conversation.conversation_id))


def _model(chat: ChatSession, argument: str) -> None:
    if argument:
        chat.use_model(argument)
    window = chat.conversation.task.config.context_length
    chat.ui.show(chat.texts("model", model=chat.model.name, window=window))


# commands that change the conversation


def _compact(chat: ChatSession, focus: str) -> None:
    """Summarise older messages with the model, unless the settings say otherwise."""
    task = chat.conversation.task
    summariser = task.summariser
    if summariser is None and chat.setup.settings.context_storage.summariser != EXTRACTIVE:
        task.summariser = chat.model.ask  # a script, whose reply the user asks for
    try:
        compression = task.compact(focus=focus)
    finally:
        task.summariser = summariser
    if compression is None:
        chat.ui.show(chat.texts("nothing to compact"))
        return
    outcome = compression.outcome
    chat.ui.show(outcome.text)
    for problem in outcome.problems:
        chat.ui.note(chat.texts("summary refused", problem=problem))
    counts = {"messages": compression.messages, "before": outcome.original_tokens, "after": outcome.tokens}
    chat.ui.note(chat.texts("compacted", **counts, saved=compression.saved, kept=compression.left))


def _undo(chat: ChatSession, _: str) -> None:
    steps, result = chat.conversation.undoable, None
    with defer_interrupt():
        if steps and chat.files.checkpoints is not None:
            result = chat.files.checkpoints.undo(steps[-1].event)
        chat.conversation.task.undo()  # raises if there is nothing to undo
    if result is not None:
        _show_restored(chat, result)
    chat.files.reload_tracker()
    chat.ui.note(chat.texts("undone", what=chat.texts(steps[-1].type)))


def _rewind(chat: ChatSession, argument: str) -> None:
    if argument:
        seq = _parse_number(chat, argument)
    else:
        prompt = chat.conversation.find_question()
        if prompt is None:
            raise UsageError(chat.texts("empty"))
        seq = prompt.seq - 1
    chat.conversation.task.rewind(seq)
    chat.ui.note(chat.texts("rewound", seq=seq))
    if chat.conversation.task.wants_reply():
        chat.ui.note(chat.texts("unanswered"))


def _clear(chat: ChatSession, _: str) -> None:
    chat.conversation.clear()
    chat.ui.note(chat.texts("cleared"))


def _tangent(chat: ChatSession, argument: str) -> None:
    if end := _TANGENT_END.fullmatch(argument):
        _end_tangent(chat, end[1] or "none")
    elif start := _TANGENT_FROM.fullmatch(argument):
        seq = _parse_number(chat, start[1])
        chat.conversation.enter_tangent(after=seq)
        chat.ui.note(chat.texts("tangent from", seq=seq))
    elif argument == "back":
        if not chat.before_tangent:
            raise UsageError(chat.texts("no tangent files"), hint=chat.texts("checkpoints off hint"))
        with defer_interrupt():
            result = _get_checkpoints(chat).restore_files(chat.before_tangent)
        _show_restored(chat, result)
        chat.before_tangent = ""
        chat.ui.note(chat.texts("files restored"))
    else:
        checkpoints = chat.files.checkpoints
        chat.conversation.enter_tangent(commit=checkpoints.save_files() if checkpoints is not None else "")
        chat.ui.note(chat.texts("tangent started"))
        if argument:
            chat.say(argument)


def _end_tangent(chat: ChatSession, keep: str) -> None:
    conversation, texts, checkpoints = chat.conversation, chat.texts, chat.files.checkpoints
    seconds, tangents = conversation.tangent_seconds or 0, conversation.tangents
    conversation.leave_tangent(keep)  # type: ignore[arg-type]  # the pattern allows no other value
    chat.files.reload_tracker()
    place = "outer tangent" if conversation.is_in_tangent else "tangent ended"
    chat.ui.note(texts(place, duration=format_duration(seconds, texts.language), kept=texts(f"kept {keep}")))
    if checkpoints is not None:
        left = tangents[-1]
        chat.before_tangent, changes = checkpoints.find_tangent_changes(left.event, left.after)
        if changes:
            paths = _format_paths([f"{change.status} {change.path}" for change in changes])
            chat.ui.note(texts("changed in tangent", paths=paths))


def _retry(chat: ChatSession, _: str) -> None:
    newest, task = chat.conversation.find_newest(), chat.conversation.task
    if newest is not None and newest.role == "assistant" and newest.text.endswith(STOPPED):
        task.rewind(newest.seq - 1)
    elif not task.wants_reply():
        raise UsageError(chat.texts("nothing to answer"))
    chat.reply("/retry")


def _resume(chat: ChatSession, argument: str) -> None:
    listing = registry.find(chat.engine, chat.directory, argument, user=chat.user)
    if listing.uuid == chat.conversation.conversation_id:
        hint = chat.texts("name", name=listing.name, uuid=listing.uuid)
        raise UsageError(chat.texts("already open"), hint=hint)
    chat.switch_to(registry.resume(chat.engine, listing.uuid, notify=chat.ui.note))


def _save(chat: ChatSession, argument: str) -> None:
    path = _parse_path(chat, argument)
    count = document.write(chat.conversation, path, chat.files.export())
    chat.ui.note(chat.texts("saved", path=path, count=count))


def _load(chat: ChatSession, argument: str) -> None:
    """Continue a saved conversation with the current model and tools."""
    task, setup, path = chat.conversation.task, chat.setup, _parse_path(chat, argument)
    options = {name: getattr(task.config, name) for name in ("model", "llm_provider", "context_length")}
    options |= {"user": task.row.user, "tools": setup.tools.schemas, "system": make_system_prompt(setup, chat.texts)}
    chat.switch_to(document.read(chat.engine, path, chat.directory, notify=chat.ui.note, **options))


def _quit(_: ChatSession, __: str) -> NoReturn:
    raise Leave


def _parse_path(chat: ChatSession, argument: str) -> Path:
    if not argument:
        raise UsageError(chat.texts("no file"), hint=chat.texts("no file hint"))
    return chat.directory / Path(argument).expanduser()


def _parse_number(chat: ChatSession, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise UsageError(chat.texts("not a number", text=ascii(text[:40])), hint=chat.texts("not a number hint"))
    return int(text)


# sticky files


def _context(chat: ChatSession, argument: str) -> None:
    verb, _, path = argument.partition(" ")
    path, sticky = path.strip(), chat.files.sticky
    if verb in {"", "show"} and not path:
        _show_sticky(chat, sticky.refresh().listing)
    elif verb == "add" and path:
        _show_sticky_changes(chat, sticky.add(path.removeprefix(FORCE).strip(), force=path.startswith(FORCE)))
    elif verb == "remove" and path:
        _show_sticky_changes(chat, sticky.remove(path))
    else:
        raise UsageError(chat.texts("context usage"), hint=chat.texts("context usage hint"))


def _show_sticky_changes(chat: ChatSession, changes: StickyChanges) -> None:
    for text, paths in (("sticky added", changes.added), ("sticky removed", changes.removed)):
        if paths:
            chat.ui.note(chat.texts(text, files=", ".join(paths)))
    _show_sticky(chat, changes.listing)


def _show_sticky(chat: ChatSession, listing: StickyListing) -> None:
    percent = round(100 * listing.tokens / listing.max_tokens)
    head = chat.texts("sticky", tokens=listing.tokens, max_tokens=listing.max_tokens, percent=percent)
    chat.ui.show("\n".join([head, *map(_format_sticky_row, listing.rows)]))


def _format_sticky_row(row: StickyRow) -> str:
    size = f"{row.tokens:>9,}  {100 * row.share:>4.1f} %" if row.shown else f"{'—':>9}  {'':>6}"
    return f"  {size}  {row.path}" + (f": {row.note}" if row.note else "")


# checkpoints


def _checkpoint(chat: ChatSession, argument: str) -> None:
    verb, _, rest = argument.partition(" ")
    rest = rest.strip()
    if verb in {"on", "off"}:
        chat.conversation.set_notes(**{ENABLED: verb == "on"})
        chat.files.open_checkpoints()
        chat.ui.note(chat.texts(f"checkpoints {verb}"))
        return
    checkpoints = _get_checkpoints(chat)
    match verb:
        case "list":
            _show_checkpoints(chat, checkpoints.list_checkpoints())
        case "expand":
            turn = _match_checkpoint(chat, ".+", rest)[0]
            _show_checkpoints(chat, checkpoints.list_checkpoints(turn) or [checkpoints.find(turn)])
        case "diff":
            names = _match_checkpoint(chat, r"(\S+)(?:\s+(\S+))?", rest)
            chat.ui.show(checkpoints.diff(names[1], names[2] or "") or chat.texts("no difference"))
        case "restore":
            names = _match_checkpoint(chat, r"(\S+)(?:\s+(--hard))?", rest)
            with defer_interrupt():
                result = checkpoints.restore(names[1], hard=bool(names[2]))
            chat.files.reload_tracker()
            chat.ui.note(chat.texts("restored", tag=names[1]))
            _show_restored(chat, result)
        case "clean":
            chat.ui.note(chat.texts("cleaned", count=checkpoints.clean()))
        case _:
            point = checkpoints.take(argument)
            chat.ui.note(chat.texts("checkpoint", tag=point.tag, label=point.label))


def _get_checkpoints(chat: ChatSession) -> Checkpoints:
    if chat.files.checkpoints is None:
        raise UsageError(chat.texts("checkpoints off"), hint=chat.texts("checkpoints off hint"))
    return chat.files.checkpoints


def _match_checkpoint(chat: ChatSession, pattern: str, argument: str) -> re.Match[str]:
    match = re.fullmatch(pattern, argument)
    if match is None:
        raise UsageError(chat.texts("which checkpoint"), hint=chat.texts("which checkpoint hint"))
    return match


def _show_checkpoints(chat: ChatSession, points: Sequence[Checkpoint]) -> None:
    lines = []
    for point in points[-MAX_CHECKPOINTS:]:
        when = point.timestamp[:16].replace("T", " ")
        lines.append(chat.texts("checkpoint row", tag=point.tag, label=point.label, files=point.files, when=when))
    chat.ui.show("\n".join(lines) or chat.texts("no checkpoints"))


def _show_restored(chat: ChatSession, result: RestoreResult) -> None:
    for text, paths in (("written", result.written), ("removed", result.removed), ("kept files", result.kept)):
        if paths:
            chat.ui.note(chat.texts(text, count=len(paths), paths=_format_paths(paths)))
    for file in result.skipped:
        chat.ui.note(f"{file.path} {file.reason}")


def _format_paths(paths: Sequence[str]) -> str:
    more = f", … (+{len(paths) - MAX_NAMES})" if len(paths) > MAX_NAMES else ""
    return ", ".join(ascii(path)[1:-1] if not path.isprintable() else path for path in paths[:MAX_NAMES]) + more


COMMANDS: tuple[Command, ...] = (
    Command("/help", "[COMMAND]", _help),
    Command("/compact", "[FOCUS]", _compact),
    Command("/tangent", "[QUESTION] | from N | end [none|tail|summary] | back", _tangent),
    Command("/rewind", "[N]", _rewind),
    Command("/undo", "", _undo),
    Command(
        "/checkpoint",
        "[LABEL] | list | expand N | diff N [M] | restore N [--hard] | clean | on | off",
        _checkpoint,
    ),
    Command("/retry", "", _retry),
    Command("/context", "add [--force] PATH | remove PATH | show", _context),
    Command("/usage", "", _usage),
    Command("/transcript", "[N]", _transcript),
    Command("/model", "[NAME]", _model),
    Command("/tools", "", _tools),
    Command("/clear", "", _clear),
    Command("/save", "FILE", _save),
    Command("/load", "FILE", _load),
    Command("/list", "", _list),
    Command("/resume", "NAME", _resume),
    Command("/name", "", _name),
    Command("/quit", "", _quit),
)
_BY_NAME = {command.name: command for command in COMMANDS}
