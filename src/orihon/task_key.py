"""The key of a task names the thing that it works on: `github/acme/shop/issue/27`, or a session: `session/user:1/abc`.

The string is canonical: two keys are equal if and only if their strings are equal, and `TaskKey.parse` parses it.
GitHub and GitLab do not distinguish `Acme` from `acme`, so the string is in lower case; the fields keep the original
spelling. Keys come from untrusted input (web hooks, command lines, files) and are used in paths, queries and pages, so
every part is validated against an allowlist of characters. The id of a session is any text: what could steer a terminal
or end a line is written as `%0A`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, NoReturn

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from orihon.coerce import to_text, unwrap
from orihon.errors import UsageError

MAX_SEGMENT = 100
MAX_OWNER = 255
MAX_PROJECT = 2**53 - 1  # the largest integer that every JSON parser represents exactly
SESSION = "session"
IDEOGRAPHIC_SPACE = "\u3000"
MAX_SESSION_BYTES, SHORTENED_SESSION = 1500, 300  # PostgreSQL indexes no more than 2,700 bytes

_SEGMENT = re.compile(r"[A-Za-z0-9_.\-]{1,100}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}", re.ASCII)

TYPES = {
    "github": ("issue", "pull_request"),
    "gitlab": ("issue", "merge_request"),
    "local": ("issue", "conversation"),
    SESSION: (SESSION,),
}


class TaskKey(Struct, frozen=True, kw_only=True, omit_defaults=True, eq=False):
    """The thing that a task works on: an issue, a pull request, a merge request or a conversation."""

    task_source: str
    owner: str = ""
    repo: str = ""
    task_type: str
    task_id: str
    project_id: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None

    SOURCES: ClassVar[tuple[str, ...]] = tuple(TYPES)

    def __post_init__(self) -> None:
        for name in ("task_source", "owner", "repo", "task_type", "task_id"):
            value = getattr(self, name)
            if type(value) is not str:  # a subclass of str is converted; a number is refused
                force_setattr(self, name, to_text(value, f"The {name} of a task key"))
        _check(self)

    @classmethod
    def github(
        cls, owner: str, repo: str, *, issue: int | str | None = None, pull_request: int | str | None = None
    ) -> TaskKey:
        """Return the key of an issue or a pull request on GitHub."""
        kind, number = _pick_number(issue=issue, pull_request=pull_request)
        return cls(task_source="github", owner=owner, repo=repo, task_type=kind, task_id=number)

    @classmethod
    def gitlab(
        cls,
        owner: str = "",
        repo: str = "",
        *,
        project_id: int | None = None,
        issue: int | str | None = None,
        merge_request: int | str | None = None,
    ) -> TaskKey:
        """Return the key of an issue or a merge request on GitLab, by path (`group/subgroup`, `repo`) or project id."""
        kind, number = _pick_number(issue=issue, merge_request=merge_request)
        return cls(task_source="gitlab", owner=owner, repo=repo, project_id=project_id, task_type=kind, task_id=number)

    @classmethod
    def local(cls, name: str, *, workspace: str = "") -> TaskKey:
        """Return the key of a local task. `workspace` distinguishes equal names in different directories."""
        return cls(task_source="local", repo=workspace, task_type="issue", task_id=name)

    @classmethod
    def session(cls, id: str) -> TaskKey:
        """Return the key of a session, which any text names."""
        text = _encode(to_text(id, "The id of a session"))
        return cls(task_source=SESSION, task_type=SESSION, task_id=_shorten(text))

    @classmethod
    def parse(cls, text: str) -> TaskKey:
        """Parse the canonical string."""
        text = to_text(text, "A task key")
        if text.startswith(f"{SESSION}/"):
            return cls(task_source=SESSION, task_type=SESSION, task_id=text.removeprefix(f"{SESSION}/"))
        parts = text.split("/")
        if len(parts) < 3:  # noqa: PLR2004 - source, type and id
            _refuse("A task key", text, "source/owner/repo/type/id, such as github/acme/shop/issue/27")
        source, *path, kind, number = parts
        if source == "gitlab" and len(path) == 1:
            project = _NUMBER.fullmatch(path[0]) or _refuse("A GitLab project id", path[0], "a positive number")
            return cls(task_source=source, project_id=int(project[0]), task_type=kind, task_id=number)
        owner, repo = "/".join(path[:-1]), path[-1] if path else ""
        return cls(task_source=source, owner=owner, repo=repo, task_type=kind, task_id=number)

    def __str__(self) -> str:
        if self.task_source == SESSION:
            return f"{SESSION}/{self.task_id}"
        path = str(self.project_id) if self.project_id is not None else f"{self.owner}/{self.repo}".lower().strip("/")
        return "/".join(part for part in (self.task_source, path, self.task_type, self.task_id) if part)

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, TaskKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def to_task_key(value: TaskKey | str) -> TaskKey:
    """Return a TaskKey unchanged; parse a string."""
    if isinstance(value, TaskKey):
        return value
    return TaskKey.parse(
        to_text(value, "A task key", hint="Pass a TaskKey or a string such as github/acme/shop/issue/27.")
    )


def _check(key: TaskKey) -> None:
    kinds = TYPES.get(key.task_source) or _refuse("A task source", key.task_source, f"one of {', '.join(TYPES)}")
    if key.task_type not in kinds:
        _refuse(f"A task type of {key.task_source}", key.task_type, f"one of {', '.join(kinds)}")
    if key.task_source == "local":
        _check_local(key)
        return
    if key.task_source == SESSION:
        _check_session(key)
        return
    if not _NUMBER.fullmatch(key.task_id):
        _refuse("A task id", key.task_id, "a positive number, such as 27")
    if key.project_id is None:
        _check_path(key)
    elif key.task_source != "gitlab" or key.owner or key.repo or not 1 <= key.project_id <= MAX_PROJECT:
        _refuse("A project id", key.project_id, "a positive number, on gitlab only, and without owner and repo")


def _check_local(key: TaskKey) -> None:
    if not _NAME.fullmatch(key.task_id) or key.task_id.endswith("."):
        _refuse("The name of a local task", key.task_id, "1 to 64 letters, digits, `_`, `-` or `.`, a letter first")
    if key.owner or key.project_id is not None or (key.repo and not _is_segment(key.repo)):
        _refuse("A workspace", key.repo or key.owner, "up to 100 letters, digits, `_`, `-` or `.`")


def _check_session(key: TaskKey) -> None:
    text = key.task_id
    if not text or _encode(text.replace("%", "")) != text.replace("%", "") or _shorten(text) != text:
        _refuse("The id of a session", text, "what TaskKey.session(text) makes of any text")
    if key.owner or key.repo or key.project_id is not None:
        _refuse("An owner of a session", key.owner or key.repo or key.project_id, "none")


def _encode(text: str) -> str:
    """Return a text with `%`, control and format characters, line ends and blanks at its ends as `%` and hex digits."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return "".join(
        character if start <= at < end and _is_harmless(character) else _hex(character)
        for at, character in enumerate(text)
    )


def _is_harmless(character: str) -> bool:
    return character != "%" and (character.isprintable() or character == IDEOGRAPHIC_SPACE)


def _hex(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _shorten(text: str) -> str:
    """Return a text that is too long for an index by its beginning and its hash."""
    data = text.encode()
    if len(data) <= MAX_SESSION_BYTES:
        return text
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, 4 MB

    return f"{text[:SHORTENED_SESSION].rstrip()}~{hashlib.sha256(data).hexdigest()[:32]}"


def _check_path(key: TaskKey) -> None:
    groups = key.owner.split("/") if key.task_source == "gitlab" else [key.owner]
    if len(key.owner) > MAX_OWNER or not all(map(_is_segment, groups)):
        _refuse("An owner", key.owner, "up to 100 letters, digits, `_`, `-` or `.` (on gitlab, groups with `/`)")
    if not _is_segment(key.repo):
        _refuse("A repository", key.repo, "up to 100 letters, digits, `_`, `-` or `.`")


def _is_segment(text: str) -> bool:
    return bool(_SEGMENT.fullmatch(text)) and text not in {".", ".."}


def _pick_number(**numbers: int | str | None) -> tuple[str, str]:
    pairs = [(kind, str(unwrap(number))) for kind, number in numbers.items() if number is not None]
    if len(pairs) != 1:
        _refuse("A task key", dict(pairs), f"exactly one of {', '.join(numbers)}")
    return pairs[0]


def _refuse(what: str, value: Any, allowed: str) -> NoReturn:
    text = ascii(value)
    if len(text) > MAX_SEGMENT:  # not truncated: masking would not recognise half of a secret
        text = f"a text of {len(text)} characters"
    raise UsageError(f"{what} cannot be {text}.", hint=f"Allowed is {allowed}.")
