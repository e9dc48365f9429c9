"""Reads the settings: the only reader of `config.yaml` and of the environment.

The environment beats the file, and the file beats the defaults. Whatever is wrong is one `SettingsError`, with a
sentence for each problem that names the file and line, the path, what was found and what is allowed. `${NAME}` inside
a text stands for a variable of the environment, `$${NAME}` for itself. Secrets never appear in a message.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_origin

import msgspec

from orihon.errors import SettingsError
from orihon.settings.schema import History, Settings
from orihon.settings.section import HIDDEN, Secret, Section, Setting, changed, dec_hook, each, each_of, enc_hook, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orihon.settings.yaml import Entry

__all__ = [
    "ENVIRONMENT",
    "Secret",
    "Settings",
    "dec_hook",
    "each",
    "enc_hook",
    "load",
    "load_with_origins",
    "override",
    "read",
]

ENVIRONMENT = {
    "CONTEXT_STORAGE_ENABLED": "context_storage.enabled",
    "CONTEXT_STORAGE_MAX_MEMORY": "context_storage.max_memory_messages",
    "COMPRESSION_THRESHOLD": "context_storage.compression_threshold",
    "ORIHON_STORE": "context_storage.base_dir",
    "GITHUB_TOKEN": "github.token",
    "GITLAB_TOKEN": "gitlab.token",
}
# Keys of the system that the settings come from, which have another place here.
FORMER = {
    "context_storage.cleanup_days": "use `retention.delete_after_days`",
    "database": "`context_storage.base_dir` takes a `postgresql://` URL",
    "llm.ollama.endpoint": "use `base_url`",
    "pause_resume.paused_dir": "paused tasks stay in the store",
    "rabbitmq": "the store is the queue",
    "use_rabbitmq": "the store is the queue",
}
BOOLEANS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)
MAX_BYTES = 1_000_000
MAX_PROBLEMS = 10
MAX_FOUND_CHARS = 60


def load(path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings from a file (`./config.yaml` if there is one) and the environment."""
    return load_with_origins(path, environ=environ)[0]


def load_with_origins(
    path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> tuple[Settings, dict[str, str]]:
    """The settings and, for each path, its origin: `default`, the file, or `environment NAME`."""
    where = os.fspath("config.yaml" if path is None else path)
    reading = _Reading(where, os.environ if environ is None else environ)
    reading.file(_content(where, must_exist=path is not None))
    reading.environment()
    return reading.settings(), reading.origins


def override(
    settings: Settings, content: object, *, where: str, variables: bool = False
) -> tuple[Settings, frozenset[str]]:
    """The settings with other values, checked like those of a file, and the paths that were given.

    `content` is a part of what `read` gave, or a mapping. Only with `variables` may it name some of the environment:
    values that come from elsewhere could ask for a secret.
    """
    reading = _Reading(where, os.environ if variables else {}, settings)
    reading.file(_entries(content) if isinstance(content, dict) else content)
    return reading.settings(), frozenset(reading.values)


def read(path: str | os.PathLike[str]) -> object:
    """What a YAML file says, as entries with their lines; None if it is empty."""
    return _content(os.fspath(path), must_exist=True)


def _entries(value: object) -> object:
    """A mapping from elsewhere as entries without lines; what is null is not given."""
    from orihon.settings.yaml import Entry  # noqa: PLC0415 - as below

    if not isinstance(value, dict):
        return value
    return tuple(Entry(str(key), 0, _entries(inner)) for key, inner in value.items() if inner is not None)


def _content(where: str, *, must_exist: bool) -> object:
    """What the file says; None if it says nothing or need not exist."""
    if "\0" not in where and Path(where).is_fifo():  # opening it would wait for somebody to write
        raise SettingsError(f"{where}: this is a pipe, not a file.", where=where)
    try:
        with Path(where).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        if must_exist:
            raise SettingsError(f"{where}: there is no such file.", where=where) from error
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"{where}: the file cannot be read ({reason}).", where=where) from error
    if len(content) > MAX_BYTES:
        raise SettingsError(f"{where}: the file is larger than {MAX_BYTES} bytes.", where=where)
    from orihon.settings import yaml as yamlfile  # noqa: PLC0415 - who has no file need not pay for the import of PyYAML

    try:
        return yamlfile.parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: byte {error.start + 1} is not UTF-8.", where=where) from error
    except yamlfile.YamlError as error:
        place = f", line {error.line}, column {error.column}" if error.line else ""
        raise SettingsError(f"{where}{place}: the YAML cannot be read: {error}.", where=where) from error


class _Problem(NamedTuple):
    where: str
    path: str
    sentence: str


class _NotSet(ValueError):
    """A variable that a text names is missing."""


class _Reading:
    """Collects values, their origins, and all that is wrong."""

    def __init__(self, where: str, environ: Mapping[str, str], base: Settings | None = None) -> None:
        self.where, self.environ, self.base = where, environ, base or Settings()
        self.known = {setting.path: setting for setting in each(Settings())}
        self.values: dict[str, object] = {}
        self.origins = dict.fromkeys(self.known, "default")
        self.problems: list[_Problem] = []

    def file(self, content: object) -> None:
        if content is None:
            return
        if isinstance(content, tuple):
            self._section(Settings(), content, "")
        else:
            self._wrong("", f"{self.where}: the file holds {_kind(content)}; allowed is {_allowed(Settings())}.")

    def environment(self) -> None:
        for name, path in ENVIRONMENT.items():
            text = self.environ.get(name, "")
            if not text.strip():
                continue
            setting = self.known[path]
            try:
                self.values[path] = _converted(setting, _parsed(setting, text))
                self.origins[path] = f"environment {name}"
            except (ValueError, msgspec.ValidationError):
                found = HIDDEN if setting.is_secret else _found(text)
                sentence = f"{name} in the environment is {found}; allowed is {setting.allowed}."
                self._wrong(path, sentence, where=f"environment {name}")

    def settings(self) -> Settings:
        settings = changed(self.base, self.values)
        if not self.problems:
            self.problems += self._conflicts(settings)
        if self.problems:
            first, more = self.problems[0], len(self.problems) - MAX_PROBLEMS
            lines = [problem.sentence for problem in self.problems[:MAX_PROBLEMS]]
            raise SettingsError(
                "\n".join([*lines, f"And {more} more."] if more > 0 else lines),
                where=first.where,
                path=first.path,
                hint="docs/settings.md lists every setting.",
            )
        return settings

    def _wrong(self, path: str, sentence: str, *, where: str = "") -> None:
        self.problems.append(_Problem(where or self.where, path, sentence))

    def _section(self, section: Section, entries: tuple[Entry, ...], prefix: str) -> None:
        lines: dict[str, int] = {}
        for key, line, value in entries:
            # The names of `history` come from a specification that writes them in capitals.
            name = key.lower() if isinstance(section, History) else key
            path, place = prefix + name, f"{self.where}, line {line}" if line else self.where
            inner = getattr(section, name) if name in section.__struct_fields__ else None
            if name in lines:
                both = f"lines {lines[name]} and {line}"
                self._wrong(path, f"{place}: `{_short(path)}` stands twice, on {both}; allowed is once.")
            elif name not in section.__struct_fields__:
                self._wrong(path, f"{place}: {self._unknown(section, name, path)}")
            elif not isinstance(inner, Section):
                read = self._list if self.known[path].item is not None else self._setting
                read(self.known[path], value, place)
            elif isinstance(value, tuple):
                self._section(inner, value, f"{path}.")
            elif value is not None:  # a section whose lines are all commented out is empty, not wrong
                self._wrong(path, f"{place}: `{path}` is {_kind(value)}; allowed is {_allowed(inner)}.")
            lines.setdefault(name, line)

    def _list(self, setting: Setting, raw: object, place: str) -> None:
        """A list of sections, such as the MCP servers."""
        if not isinstance(raw, list | None):
            self._wrong(setting.path, f"{place}: `{setting.path}` is {_kind(raw)}; allowed is {setting.allowed}.")
            return
        before = len(self.problems)
        items = [self._item(setting, number, item, place) for number, item in enumerate(raw or ())]
        if len(self.problems) == before:
            self.values[setting.path] = tuple(items)
            self.origins[setting.path] = self.where

    def _item(self, setting: Setting, number: int, raw: object, place: str) -> Section | None:
        """One section of a list; None when something is wrong with it."""
        path = f"{setting.path}[{number}]"
        if setting.item is None or not isinstance(raw, tuple):
            allowed = setting.allowed.replace("a list of sections", "a section")
            self._wrong(path, f"{place}: `{path}` is {_kind(raw)}; allowed is {allowed}.")
            return None
        before = len(self.problems)
        fields = {field.path: field for field in each_of(setting.item)}
        lines: dict[str, int] = {}
        for key, line, value in raw:
            here = f"{self.where}, line {line}"
            if key in lines:
                both = f"lines {lines[key]} and {line}"
                self._wrong(path, f"{here}: `{path}.{_short(key)}` stands twice, on {both}; allowed is once.")
            elif key not in fields:
                names = ", ".join(fields)
                self._wrong(path, f"{here}: `{path}.{_short(key)}` is not a setting; allowed here are {names}.")
            else:
                self._setting(fields[key]._replace(path=f"{path}.{key}"), value, here)
            lines.setdefault(key, line)
        values = {name: self.values.pop(f"{path}.{name}", None) for name in lines}
        for name in lines:
            self.origins.pop(f"{path}.{name}", None)
        place = f"{self.where}, line {min(lines.values())}" if lines else place
        missing = [name for name, field in fields.items() if field.value is None and name not in lines]
        if missing:
            self._wrong(path, f"{place}: `{path}` has no {missing[0]}.")
        if len(self.problems) > before:
            return None
        try:
            item: Section = setting.item(**values)
        except ValueError as error:
            self._wrong(path, f"{place}: `{path}` {error}.")
            return None
        return item

    def _setting(self, setting: Setting, raw: object, place: str) -> None:
        try:
            self.values[setting.path] = _converted(setting, _filled(setting, raw, self.environ))
            self.origins[setting.path] = self.where
        except _NotSet as error:
            # Somebody without this provider should not be stopped by its key.
            if not setting.is_secret:
                self._wrong(
                    setting.path, f"{place}: `{setting.path}` needs {error}, which the environment does not set."
                )
        except (ValueError, msgspec.ValidationError):
            many = get_origin(setting.plain_type) is dict  # whose texts are secrets
            found = HIDDEN if setting.is_secret else _kind(raw) if many else _found(raw)
            self._wrong(setting.path, f"{place}: `{setting.path}` is {found}; allowed is {setting.allowed}.")

    def _unknown(self, section: Section, name: str, path: str) -> str:
        begin = f"`{_short(path)}` is not a setting"
        if path in FORMER:
            return f"{begin}; {FORMER[path]}."
        from difflib import get_close_matches  # noqa: PLC0415 - only for those who mistyped

        known = section.__struct_fields__ if len(self.problems) < MAX_PROBLEMS else ()  # others are only counted
        near = get_close_matches(name[:MAX_FOUND_CHARS].lower(), known, n=1)
        elsewhere = [known for known in self.known if f".{known}".endswith(f".{name}")]
        if not near and len(elsewhere) == 1:
            near = elsewhere
        guess = f"; did you mean `{near[0]}`?" if near else "."
        return f"{begin}; allowed here are {', '.join(section.__struct_fields__)}{guess}"

    def _conflicts(self, settings: Settings) -> Iterator[_Problem]:
        """Pairs of settings that do not go together."""
        now = {setting.path: setting.value for setting in each(settings)}
        window = f"llm.{settings.llm.provider}"
        for small, large in (
            ("fold_to", "fold_at"),
            ("lease.heartbeat_seconds", "lease.expiry_seconds"),
            ("monitor.disk_warning_gb", "monitor.disk_critical_gb"),
            ("window.reserved_output", f"{window}.context_length"),
            ("planning.replanning.user_confirmation_threshold", "planning.replanning.min_confidence_threshold"),
        ):
            if not now[small] < now[large]:  # type: ignore[operator]
                where = next((self.origins[p] for p in (small, large) if self.origins[p] != "default"), self.where)
                allowed = f"less than `{large}`, which is {now[large]}"
                yield _Problem(where, small, f"{where}: `{small}` is {now[small]}; allowed is {allowed}.")
        names = [server.mcp_server_name for server in settings.mcp_servers]
        for name in sorted({name for name in names if names.count(name) > 1}):
            sentence = f"`mcp_servers` has {names.count(name)} servers called {_found(name)}; allowed is one."
            yield _Problem(self.where, "mcp_servers", f"{self.where}: {sentence}")
        if not settings.llm.chosen.model:
            sentence = f"`{window}.model` is empty; allowed is the name of a model, because `llm.provider` chooses it."
            yield _Problem(self.where, f"{window}.model", f"{self.where}: {sentence}")


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    def variable(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if match[2] not in environ:
            raise _NotSet(f"`{_short(match[0])}`")
        return environ[match[2]]

    return re.sub(r"\$(\$?)\{([^{}]*)\}", variable, text)


def _parsed(setting: Setting, text: str) -> object:
    """A value from the environment, which is always text; what does not parse stays text and is refused later."""
    plain = setting.plain_type
    if plain is bool:
        return BOOLEANS.get(text.strip().lower(), text)
    if plain in (int, float):
        with suppress(ValueError):
            return plain(text)
    return text


def _filled(setting: Setting, raw: object, environ: Mapping[str, str]) -> object:
    """What the file says, with the variables of the environment in their places."""
    kind = get_origin(setting.plain_type)
    if kind is tuple and isinstance(raw, list):
        return [_variables(item, environ) for item in raw]
    if kind is dict and isinstance(raw, tuple):
        if len({entry.key for entry in raw}) < len(raw):
            raise ValueError("a key stands twice")
        return {entry.key: _variables(entry.value, environ) for entry in raw}
    if kind is dict and raw is None:
        return {}
    return _parsed(setting, _expanded(raw, environ)) if isinstance(raw, str) and "${" in raw else raw


def _variables(item: object, environ: Mapping[str, str]) -> object:
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)  # a port, where only texts are
    return _expanded(item, environ) if isinstance(item, str) else item


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for text in pair if isinstance(text, str))


def _converted(setting: Setting, value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    for text in _texts(value):
        text.encode()  # a lone surrogate could neither be stored nor printed
        if "\0" in text:
            raise ValueError("no path and no key holds NUL")
    if isinstance(value, str) and setting.is_secret and not value.strip():
        return None
    return msgspec.convert(value, setting.type, dec_hook=dec_hook)


def _found(value: object) -> str:
    if isinstance(value, tuple | list):
        return _kind(value)
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return _short(repr(shown(value)))


def _kind(value: object) -> str:
    """For places where a value itself is not expected, and may be a key that slipped up one level."""
    return {tuple: "a section", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")


def _short(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
    return text if len(text) <= MAX_FOUND_CHARS else f"{text[:MAX_FOUND_CHARS]}…"


def _allowed(section: Section) -> str:
    return f"a section of {', '.join(section.__struct_fields__)}"
