"""A summary without a model: verbatim entries of a log under stable headings. It needs nothing and never fails.

`find_entries` reads what users asked and insisted on, what the agent decided and said last, which files it changed,
which commands worked, what failed and what it did then, and the passages that the next run is likely to need.
A summary that grows is made again from the entries of all the messages that it stands for, so that summaries never
nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from orihon.coerce import decode_json
from orihon.context.ledger import (
    KINDS,
    LASTING,
    Entry,
    drop_superseded,
    find_prose,
    parse,
    revokes,
    words_of,
)
from orihon.context.names import TOKEN, is_name, trim
from orihon.context.passages import find_passages
from orihon.context.pieces import shortened
from orihon.parts import shorten_name
from orihon.records import Call, Message
from orihon.tokens import Counter

MAX_TOKENS = 8_000  # of a ledger: what the largest block by default can hold
CHARS_PER_TOKEN = 4
REQUEST_CHARS = 1_500  # of one request
LOOK_CHARS = 12_000  # of one message, for sentences
MAX_ENTRIES = 60  # of one kind, beside passages
STATE_CHARS = 700
PROSE_SHARE = 0.4  # of the room, for the words of the previous summary

# what is not the user's own words: reminders and reports of a program, and project files that it pasted
_WRAPPED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|local-command-\w+|command-(?:name|message|contents)"
    r"|task-notification|bash-(?:stdout|stderr|input))\b[^>]*>.*?(?:</\1>|\Z)|^Caveat: The messages below .*$",
    re.DOTALL | re.MULTILINE,
)
_PASTED = re.compile(
    r"\A\s*(?:# AGENTS\.md|<INSTRUCTIONS>|# CLAUDE\.md|Base directory for this skill"
    r"|---\nname:|## Context\b|<files_mentioned)"
)
_TAG = re.compile(r"</?[a-z][\w-]*>")
_GO_ON = re.compile(
    r"\W*(?:go on|continue|proceed|ok(?:ay)?|yes|yep|sure|thanks?(?: you)?|next|done|y"
    r"|続けて(?:ください)?|はい|お願いします)\W*\d*\W*",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"[^.!?。\uff01\uff1f\n]+(?:[.!?](?!\s|$)[^.!?。\uff01\uff1f\n]*)*[.!?。\uff01\uff1f]?")
_STRONG = re.compile(
    r"\b(?:must|never|always|don['\u2019]?t|do not|important|make sure|ensure|under no circumstances|forbidden"
    r"|required)\b"
    r"|必ず|禁止|絶対|しないで|しないこと|厳禁|必須|いけません|なりません|だめ|重要",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:only|please|should|instead of|avoid|keep|prefer|without|no longer|stick to|use)\b"
    r"|してください|すること|避けて|のみ|だけ|ようにして|優先|代わりに",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:decid\w+|decision|going with|we(?:'ll| will) (?:use|keep|go)|chose|settled on|agreed|opted)\b"
    r"|決定|方針|採用|することにし",
    re.IGNORECASE,
)
_REASONED = re.compile(
    r"\b(?:instead of|because|the (?:root )?cause|turns out|so that|rather than"
    r"|the (?:fix|problem|issue|reason) (?:is|was))\b"
    r"|原因|ため[、に]|理由|代わりに",
    re.IGNORECASE,
)
_READERS = re.compile(r"read|view|open|cat\b", re.IGNORECASE)
_WRITERS = re.compile(r"write|edit|create|patch|replace|insert|delete|move|rename", re.IGNORECASE)
_PATHS = re.compile(
    r'"(?:path|file_?path|filename|file|target|destination|notebook_path)"\s*:\s*"((?:[^"\\]|\\.){1,300})"',
    re.IGNORECASE,
)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_COMMAND_KEYS = ("command", "cmd", "script", "code")
_READS = re.compile(
    r"(?:cd \S+ (?:&&|;) )?(?:ls|cat|head|tail|sed -n|grep|rg|find|wc|pwd|which|echo|tree|file|stat|cd|sleep|jq|nl"
    r"|git (?:status|log|diff|show|branch|remote|rev-parse|blame))\b"
)
_CHECKS = re.compile(
    r"\b(?:test|tests|pytest|jest|vitest|build|check|lint|tsc|mypy|ruff|compile|verify|cargo|make|typecheck)\b"
)
_EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode|Exit code)[:>\s]{1,3}(\d{1,3})\b", re.IGNORECASE
)
_ERROR_LINE = re.compile(
    r"\b\w*(?:Error|Exception)\b.{3,}|\b(?:FAILED|FAIL|fatal|panic|error)\b[:!\[ ].{3,}|エラー|失敗", re.MULTILINE
)


def shorten_prose(previous: str, max_tokens: int, counter: Counter) -> str:
    """Return what the previous summary says before its ledger, shortened to its share."""
    return shortened(find_prose(previous), max_tokens * PROSE_SHARE, counter.text)


def find_all_entries(messages: Sequence[Message], previous: str, *, max_tokens: int) -> list[Entry]:
    """Return the entries that the messages leave, continuing those of the previous summary."""
    return continue_entries(parse(previous)[1], find_entries(messages, max_tokens=max_tokens))


def continue_entries(earlier: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a log, given those of its beginning and those of its end; nothing is said twice."""
    if not earlier:
        return list(entries)
    weighed = [replace(entry, weight=_weigh(entry)) for entry in earlier]
    found = []
    for kind in KINDS:
        old, new = ([entry for entry in one if entry.kind == kind] for one in (weighed, entries))
        if kind == "request":
            found += [*old[:1], *new, *reversed(old[1:])]
        elif kind in LASTING:
            found += sorted((*new, *old), key=lambda entry: -entry.weight)
        else:
            found += [entry for pair in zip_longest(new, old) for entry in pair if entry is not None]
    return drop_superseded(found)


def _weigh(entry: Entry) -> float:
    if entry.kind == "constraint":
        return _weigh_demand(entry.text)
    return _weigh_decision(entry.text) if entry.kind == "decision" else 0.0


def find_entries(messages: Sequence[Message], *, max_tokens: int = MAX_TOKENS) -> list[Entry]:
    """Return the entries that the messages leave, of each kind the worthiest first."""
    log = _Log(messages)
    found = [*_requests(log), *_constraints(log), *_decisions(log), *_state(log)]
    found += [*_files(log), *_commands(log), *_errors(log)]
    shown = "\n".join(entry.text for entry in found)
    found = drop_superseded(found)
    return [*found, *find_passages(log.messages, max_chars=max_tokens * CHARS_PER_TOKEN, shown=shown)]


class _Log:
    """The messages, with what several finders need."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = [message for message in messages if message.role != "system"]
        self.asked = [(message, text) for message in self.messages if (text := own_words(message))]
        self.results = {message.tool_call_id: message for message in self.messages if message.tool_call_id}
        self.said = [message for message in self.messages if message.role == "assistant" and message.text.strip()]

    def calls(self) -> Iterator[tuple[Message, Call, Message | None]]:
        """Yield every call with its message and its result."""
        for message in self.messages:
            for call in message.tool_calls:
                yield message, call, self.results.get(call.id)


def own_words(message: Message) -> str:
    """Return what the user wrote, without what a program put around it; empty for other messages."""
    if message.role != "user":
        return ""
    text = _WRAPPED.sub("", message.text).strip()
    return "" if _GO_ON.fullmatch(_TAG.sub("", text)) else text


def _requests(log: _Log) -> Iterator[Entry]:
    """Yield the first request, then the newest ones: the goal, and where it went."""
    asked = [(message, text) for message, text in log.asked if not _PASTED.match(text)] or log.asked
    for rank, (message, text) in enumerate([*asked[:1], *reversed(asked[1:])][:MAX_ENTRIES]):
        yield Entry(
            "request", message.seq, _cut(text, REQUEST_CHARS if rank == 0 else REQUEST_CHARS // 3), 1 / (1 + rank)
        )


def _constraints(log: _Log) -> list[Entry]:
    """Return the sentences of the user that demand, forbid or prefer something: the strong and the short ones first."""
    found: dict[str, Entry] = {}
    for message, text, share in _demands(log):
        for sentence in _sentences(text):
            weight = share * _weigh_demand(sentence)
            same = " ".join(words_of(sentence))
            if weight and (same not in found or found[same].weight <= weight):
                found[same] = Entry("constraint", message.seq, sentence, round(weight, 4))
    return sorted(found.values(), key=lambda entry: -entry.weight)[:MAX_ENTRIES]


def _weigh_demand(sentence: str) -> float:
    strength = 2.0 if _STRONG.search(sentence) or revokes(sentence) else 1.0 if _WEAK.search(sentence) else 0.0
    return strength / (1 + len(sentence) / 120) if _has_length(sentence) else 0.0


def _demands(log: _Log) -> Iterator[tuple[Message, str, float]]:
    """Yield the texts in which users can demand something, and what they count: a program may have added the rest."""
    for message in log.messages:
        if message.role != "user":
            continue
        for found in _WRAPPED.finditer(message.text):
            yield message, _TAG.sub("\n", found.group()), WRAPPED_COUNTS
        text = own_words(message)
        yield message, text, PASTED_COUNTS if _PASTED.match(text) else 1.0


WRAPPED_COUNTS, PASTED_COUNTS = 0.25, 0.5
EXPLICIT = 10.0  # what a sentence that says that it decides is worth beside one that gives a reason
MIN_SENTENCE_CHARS, MAX_SENTENCE_CHARS = 10, 320


def _decisions(log: _Log) -> list[Entry]:
    """Return the sentences in which the agent or the user decides or explains: the explicit and the new ones first."""
    found: dict[str, Entry] = {}
    count = len(log.messages)
    for place, message in enumerate(log.messages):
        if message.role == "tool":
            continue
        text = own_words(message) if message.role == "user" else message.text
        for sentence in _sentences(text):
            weight = _weigh_decision(sentence)
            if weight and (message.role == "assistant" or _DECIDED.search(sentence)):
                found[" ".join(words_of(sentence))] = Entry(
                    "decision", message.seq, sentence, round(weight + place / count, 4)
                )
    return sorted(found.values(), key=lambda entry: -entry.weight)[:MAX_ENTRIES]


def _weigh_decision(sentence: str) -> float:
    decided = _DECIDED.search(sentence) is not None
    if not _has_length(sentence) or not (decided or _REASONED.search(sentence)):
        return 0.0
    names = sum(is_name(trim(token)) for token in TOKEN.findall(sentence))
    return EXPLICIT * decided + 2 * (1 + min(names, 3)) / (1 + len(sentence) / 200)


def _has_length(sentence: str) -> bool:
    return MIN_SENTENCE_CHARS <= len(sentence) <= MAX_SENTENCE_CHARS


def _state(log: _Log) -> Iterator[Entry]:
    """Yield the open items of the last list of things to do, then the newest words of the agent."""
    yield from _open_items(log)
    for rank, message in enumerate(reversed(log.said[-6:])):
        text = message.text.strip()
        if len(text) > STATE_CHARS:
            end = text[-STATE_CHARS:]
            text = f"… {end[end.find(chr(10)) + 1 :]}" if "\n" in end[: STATE_CHARS // 2] else f"… {end}"
        yield Entry("state", message.seq, text, 1 / (2 + rank))


def _open_items(log: _Log) -> Iterator[Entry]:
    for message in reversed(log.messages):
        for call in message.tool_calls:
            items = _find_items(_arguments(call))
            if items:
                left = [text for text, status in items if status not in {"completed", "done", "cancelled"}]
                if left:
                    yield Entry("state", message.seq, "☐ " + "\n☐ ".join(left[:12]), 1.0)
                return


def _find_items(arguments: Any) -> list[tuple[str, str]]:
    """Return the items of a list of things to do, each with its status; none if the arguments hold no such list."""
    for value in arguments.values() if isinstance(arguments, dict) else ():
        rows = [row for row in value if isinstance(row, dict) and "status" in row] if isinstance(value, list) else []
        texts = [next((row[key] for key in _ITEM_KEYS if isinstance(row.get(key), str)), "") for row in rows]
        if texts and all(texts):
            return [(_flat(text), str(row["status"])) for text, row in zip(texts, rows, strict=True)]
    return []


_ITEM_KEYS = ("content", "step", "title", "description", "text", "subject")


def _files(log: _Log) -> list[Entry]:
    """Return the changed files, the last one first, with the number of edits and what the last one was for."""
    edits: dict[str, list[tuple[Message, str, str]]] = {}
    for message, call, result in log.calls():
        if result is not None and (result.is_error or _failed(result)):
            continue
        for path in _changed_paths(call):
            edits[path] = [*edits.pop(path, []), (message, shorten_name(call.name), _purpose(message))]
    root = _common_directory(list(edits))
    found = []
    for rank, (path, changes) in enumerate(reversed(edits.items())):
        message, tool, _ = changes[-1]
        purpose = next((text for *_, text in reversed(changes) if text), "")
        times = f" ({len(changes)}×)" if len(changes) > 1 else ""
        shown = path[len(root) :] if rank else path
        found.append(
            Entry("file", message.seq, f"{tool} {shown}{times}{': ' if purpose else ''}{purpose}", 1 / (1 + rank))
        )
    return [*found[:MAX_ENTRIES], *_read_files(log, set(edits))]


def _read_files(log: _Log, changed: set[str]) -> Iterator[Entry]:
    """Yield one entry with the files that were read but not changed, the newest first."""
    paths: dict[str, None] = {}
    newest = 0
    for message, call, result in log.calls():
        path = _PATHS.search(call.arguments) if _READERS.search(call.name) and result is not None else None
        if path and path[1] not in changed and "." in path[1].rsplit("/", 1)[-1]:
            paths.pop(path[1], None)
            paths[path[1]] = None
            newest = message.seq
    if paths:
        root = _common_directory(list(paths))
        shown = [path[len(root) :] for path in reversed(paths)][:MAX_READ_FILES]
        yield Entry("file", newest, f"read{f' in {root}' if root else ''}: {', '.join(shown)}", 0.0)


def _changed_paths(call: Call) -> list[str]:
    if len(call.arguments) < MAX_PATCH_CHARS and (patched := _PATCHED.findall(call.arguments.replace("\\n", "\n"))):
        return list(dict.fromkeys(path.strip() for path in patched))
    path = _PATHS.search(call.arguments) if _WRITERS.search(call.name) else None
    return [path[1].replace("\\\\", "\\")] if path else []


MAX_PATCH_CHARS = 200_000
MAX_READ_FILES = 12


def _purpose(message: Message) -> str:
    first = next(iter(_sentences(message.text)), "")
    return _cut(first.rstrip(":\uff1a"), 120)


def _common_directory(paths: Sequence[str]) -> str:
    parts = [path.split("/")[:-1] for path in paths]
    common: list[str] = []
    for names in zip(*parts, strict=False) if len(parts) > 1 else ():
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return "/".join(common) + "/" if len(common) > 1 else ""


def _commands(log: _Log) -> list[Entry]:
    """Return the commands of one line that ended well, tests and builds first, the newest of each kind."""
    found: dict[str, Entry] = {}
    for message, call, result in log.calls():
        command = _command(call)
        if not command or result is None or result.is_error or _failed(result) or _READS.match(command):
            continue
        weight = (2.0 if _CHECKS.search(command) else 1.0) / (1 + len(command) / 200)
        kind = " ".join(command.split()[:2])
        found.pop(kind, None)
        found[kind] = Entry("command", message.seq, command, round(weight, 4))
    return sorted(found.values(), key=lambda entry: (-entry.weight, -entry.seq))[:MAX_ENTRIES]


def _command(call: Call) -> str:
    """Return the command that a call runs, if it is one short line."""
    arguments = _arguments(call)
    values = (arguments.get(key) for key in _COMMAND_KEYS) if isinstance(arguments, dict) else ()
    command = next((value for value in values if value), "")
    if isinstance(command, list):
        command = command[-1] if command else ""
    command = command.strip() if isinstance(command, str) else ""
    return command if len(command) <= MAX_COMMAND_CHARS and "\n" not in command else ""


MAX_COMMAND_CHARS = 300


def _errors(log: _Log) -> list[Entry]:
    """Return the failures, the newest first: the telling line, and what the agent said next or that it worked later."""
    found: dict[str, Entry] = {}
    later = _later_successes(log)
    following: dict[int, str] = {}
    said = ""
    for message in reversed(log.messages):
        following[message.seq] = said
        if message.role == "assistant" and message.text.strip():
            said = next(iter(_sentences(message.text)), "")
    for message, call, result in log.calls():
        if result is None or not (result.is_error or _failed(result)):
            continue
        telling = _ERROR_LINE.search(result.text)
        line = _flat(_line_at(result.text, telling.start()) if telling else result.text[:200])
        what = _cut(_command(call), 100) or shorten_name(call.name)
        solved = later.get((call.name, _kind(call)), 0)
        then = f" → OK (m{solved})" if solved > message.seq else ""
        then = then or (f" → {_cut(following[result.seq], 160)}" if following[result.seq] else "")
        found.pop(line, None)
        found[line] = Entry("error", result.seq, f"{what}: {_cut(line, 200)}{then}", 1.0)
    return list(reversed(found.values()))[:MAX_ENTRIES]


def _later_successes(log: _Log) -> dict[tuple[str, str], int]:
    found = {}
    for message, call, result in log.calls():
        if result is not None and not result.is_error and not _failed(result) and _kind(call):
            found[call.name, _kind(call)] = message.seq
    return found


def _kind(call: Call) -> str:
    command = _command(call)
    return "" if _READS.match(command) else " ".join(command.split()[:3])


def _failed(result: Message) -> bool:
    code = _EXIT.search(result.text[:300]) or _EXIT.search(result.text[-300:])
    return code is not None and code[1] != "0"


def _line_at(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[text.rfind("\n", 0, place) + 1 : end if end >= 0 else len(text)]


def _arguments(call: Call) -> Any:
    try:
        return decode_json(call.arguments)
    except ValueError:
        return {}


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; code and tables have none."""
    for found in _SENTENCE.finditer(_FENCED.sub("\n", text[:LOOK_CHARS])):
        sentence = found.group().strip().lstrip("-*#>•0123456789.) \t").strip()
        if sentence and "|" not in sentence[:1]:
            yield sentence


_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 2].rstrip()} …"
