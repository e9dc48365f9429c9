"""Load the settings from `config.yaml` and the environment. No other module reads them.

The environment overrides the file, and the file overrides the defaults. All problems are reported in one
`SettingsError`, with a sentence for each that names the file and line, the path, the value and the allowed values.
`${NAME}` inside a text is replaced with an environment variable; `$${NAME}` is an escaped `${NAME}`. Secrets never
appear in a message.
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
from orihon.settings.section import (
    HIDDEN,
    Secret,
    Section,
    Setting,
    dec_hook,
    enc_hook,
    iter_list_settings,
    iter_settings,
    redact,
    replace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orihon.settings.yaml import Entry

__all__ = [
    "ENVIRONMENT",
    "Secret",
    "Settings",
    "dec_hook",
    "enc_hook",
    "iter_settings",
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
    "ORIHON_LOG_FILE": "log_file",
    "GITHUB_TOKEN": "github.token",
    "GITLAB_TOKEN": "gitlab.token",
}
# Keys of the specification that have a different name here.
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
    """Return the settings from a file (by default `./config.yaml`, if it exists) and the environment."""
    return load_with_origins(path, environ=environ)[0]


def load_with_origins(
    path: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> tuple[Settings, dict[str, str]]:
    """Return the settings and the origin of each path: `default`, the file, or `environment NAME`."""
    where = os.fspath("config.yaml" if path is None else path)
    loader = _Loader(where, os.environ if environ is None else environ)
    loader.read_file(_read_content(where, must_exist=path is not None))
    loader.read_environment()
    return loader.make_settings(), loader.origins


def override(
    settings: Settings, content: object, *, where: str, variables: bool = False
) -> tuple[Settings, frozenset[str]]:
    """Return the settings with the values of `content`, validated like those of a file, and the paths in `content`.

    `content` is a part of the result of `read`, or a mapping. Environment variables are replaced only if `variables`
    is true, because untrusted content could refer to a secret.
    """
    loader = _Loader(where, os.environ if variables else {}, settings)
    loader.read_file(_to_entries(content) if isinstance(content, dict) else content)
    return loader.make_settings(), frozenset(loader.values)


def read(path: str | os.PathLike[str]) -> object:
    """Return the content of a YAML file as entries with their lines; None if it is empty."""
    return _read_content(os.fspath(path), must_exist=True)


def _to_entries(value: object) -> object:
    """Convert a mapping to entries without lines. Null values are skipped."""
    from orihon.settings.yaml import Entry  # noqa: PLC0415 - as below

    if not isinstance(value, dict):
        return value
    return tuple(Entry(str(key), 0, _to_entries(inner)) for key, inner in value.items() if inner is not None)


def _read_content(where: str, *, must_exist: bool) -> object:
    """Return the content of a file; None if it is empty, or missing and not required."""
    if "\0" not in where and Path(where).is_fifo():  # opening it would block until a process writes to it
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
    from orihon.settings import yaml as yamlfile  # noqa: PLC0415 - PyYAML is imported only if there is a file

    try:
        return yamlfile.parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: byte {error.start + 1} is not UTF-8.", where=where) from error
    except yamlfile.YamlError as error:
        position = f", line {error.line}, column {error.column}" if error.line else ""
        raise SettingsError(f"{where}{position}: the YAML cannot be read: {error}.", where=where) from error


class _Problem(NamedTuple):
    where: str
    path: str
    sentence: str


class _NotSet(ValueError):
    """A text refers to an environment variable that is not set."""


class _Loader:
    """Collects the values, their origins and all problems."""

    def __init__(self, where: str, environ: Mapping[str, str], base: Settings | None = None) -> None:
        self.where, self.environ, self.base = where, environ, base or Settings()
        self.known = {setting.path: setting for setting in iter_settings(Settings())}
        self.values: dict[str, object] = {}
        self.origins = dict.fromkeys(self.known, "default")
        self.problems: list[_Problem] = []

    def read_file(self, content: object) -> None:
        if content is None:
            return
        if isinstance(content, tuple):
            self._read_section(Settings(), content, "")
        else:
            allowed = _describe_section(Settings())
            self._report("", f"{self.where}: the file contains {_describe_kind(content)}; allowed is {allowed}.")

    def read_environment(self) -> None:
        for name, path in ENVIRONMENT.items():
            text = self.environ.get(name, "")
            if not text.strip():
                continue
            setting = self.known[path]
            try:
                self.values[path] = _convert(setting, _parse(setting, text))
                self.origins[path] = f"environment {name}"
            except (ValueError, msgspec.ValidationError):
                value = HIDDEN if setting.is_secret else _describe_value(text)
                sentence = f"{name} in the environment is {value}; allowed is {setting.allowed}."
                self._report(path, sentence, where=f"environment {name}")

    def make_settings(self) -> Settings:
        settings = replace(self.base, self.values)
        if not self.problems:
            self.problems += self._find_conflicts(settings)
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

    def _report(self, path: str, sentence: str, *, where: str = "") -> None:
        self.problems.append(_Problem(where or self.where, path, sentence))

    def _read_section(self, section: Section, entries: tuple[Entry, ...], prefix: str) -> None:
        lines: dict[str, int] = {}
        for key, line, value in entries:
            # The specification writes the names of `history` in capitals.
            name = key.lower() if isinstance(section, History) else key
            path, location = prefix + name, f"{self.where}, line {line}" if line else self.where
            inner = getattr(section, name) if name in section.__struct_fields__ else None
            if name in lines:
                both = f"lines {lines[name]} and {line}"
                self._report(path, f"{location}: `{_shorten(path)}` is set twice, on {both}; allowed is once.")
            elif name not in section.__struct_fields__:
                self._report(path, f"{location}: {self._describe_unknown(section, name, path)}")
            elif not isinstance(inner, Section):
                read = self._read_list if self.known[path].item is not None else self._read_setting
                read(self.known[path], value, location)
            elif isinstance(value, tuple):
                self._read_section(inner, value, f"{path}.")
            elif value is not None:  # a section whose lines are all commented out is empty, not wrong
                allowed = _describe_section(inner)
                self._report(path, f"{location}: `{path}` is {_describe_kind(value)}; allowed is {allowed}.")
            lines.setdefault(name, line)

    def _read_list(self, setting: Setting, raw: object, location: str) -> None:
        """Read a list of sections, such as the MCP servers."""
        if not isinstance(raw, list | None):
            sentence = f"{location}: `{setting.path}` is {_describe_kind(raw)}; allowed is {setting.allowed}."
            self._report(setting.path, sentence)
            return
        before = len(self.problems)
        items = [self._read_item(setting, number, item, location) for number, item in enumerate(raw or ())]
        if len(self.problems) == before:
            self.values[setting.path] = tuple(items)
            self.origins[setting.path] = self.where

    def _read_item(self, setting: Setting, number: int, raw: object, location: str) -> Section | None:
        """Return one section of a list; None if it is invalid."""
        path = f"{setting.path}[{number}]"
        if setting.item is None or not isinstance(raw, tuple):
            allowed = setting.allowed.replace("a list of sections", "a section")
            self._report(path, f"{location}: `{path}` is {_describe_kind(raw)}; allowed is {allowed}.")
            return None
        before = len(self.problems)
        fields = {field.path: field for field in iter_list_settings(setting.item)}
        lines: dict[str, int] = {}
        for key, line, value in raw:
            here = f"{self.where}, line {line}"
            if key in lines:
                both = f"lines {lines[key]} and {line}"
                self._report(path, f"{here}: `{path}.{_shorten(key)}` is set twice, on {both}; allowed is once.")
            elif key not in fields:
                names = ", ".join(fields)
                self._report(path, f"{here}: `{path}.{_shorten(key)}` is not a setting; allowed here are {names}.")
            else:
                self._read_setting(fields[key]._replace(path=f"{path}.{key}"), value, here)
            lines.setdefault(key, line)
        values = {name: self.values.pop(f"{path}.{name}", None) for name in lines}
        for name in lines:
            self.origins.pop(f"{path}.{name}", None)
        location = f"{self.where}, line {min(lines.values())}" if lines else location
        missing = [name for name, field in fields.items() if field.value is None and name not in lines]
        if missing:
            self._report(path, f"{location}: `{path}` has no {missing[0]}.")
        if len(self.problems) > before:
            return None
        try:
            item: Section = setting.item(**values)
        except ValueError as error:
            self._report(path, f"{location}: `{path}` {error}.")
            return None
        return item

    def _read_setting(self, setting: Setting, raw: object, location: str) -> None:
        try:
            self.values[setting.path] = _convert(setting, _fill(setting, raw, self.environ))
            self.origins[setting.path] = self.where
        except _NotSet as error:
            # The API key of a provider that is not used may be unset.
            if not setting.is_secret:
                sentence = f"{location}: `{setting.path}` needs {error}, which the environment does not set."
                self._report(setting.path, sentence)
        except (ValueError, msgspec.ValidationError):
            is_dict = get_origin(setting.plain_type) is dict  # its values are secrets
            value = HIDDEN if setting.is_secret else _describe_kind(raw) if is_dict else _describe_value(raw)
            self._report(setting.path, f"{location}: `{setting.path}` is {value}; allowed is {setting.allowed}.")

    def _describe_unknown(self, section: Section, name: str, path: str) -> str:
        begin = f"`{_shorten(path)}` is not a setting"
        if path in FORMER:
            return f"{begin}; {FORMER[path]}."
        from difflib import get_close_matches  # noqa: PLC0415 - only for misspelt names

        known = section.__struct_fields__ if len(self.problems) < MAX_PROBLEMS else ()  # further ones are only counted
        near = get_close_matches(name[:MAX_FOUND_CHARS].lower(), known, n=1)
        elsewhere = [known for known in self.known if f".{known}".endswith(f".{name}")]
        if not near and len(elsewhere) == 1:
            near = elsewhere
        guess = f"; did you mean `{near[0]}`?" if near else "."
        return f"{begin}; allowed here are {', '.join(section.__struct_fields__)}{guess}"

    def _find_conflicts(self, settings: Settings) -> Iterator[_Problem]:
        """Yield a problem for each pair of settings that contradict each other."""
        now = {setting.path: setting.value for setting in iter_settings(settings)}
        window = f"llm.{settings.llm.provider}"
        for small, large in (
            ("fold_to", "fold_at"),
            ("lease.heartbeat_seconds", "lease.expiry_seconds"),
            ("monitor.disk_warning_gb", "monitor.disk_critical_gb"),
            ("window.reserved_output", f"{window}.context_length"),
            ("planning.replanning.user_confirmation_threshold", "planning.replanning.min_confidence_threshold"),
        ):
            if now[small] is not None and not now[small] < now[large]:  # type: ignore[operator]
                where = next((self.origins[p] for p in (small, large) if self.origins[p] != "default"), self.where)
                allowed = f"less than `{large}`, which is {now[large]}"
                yield _Problem(where, small, f"{where}: `{small}` is {now[small]}; allowed is {allowed}.")
        names = [server.mcp_server_name for server in settings.mcp_servers]
        for name in sorted({name for name in names if names.count(name) > 1}):
            sentence = f"`mcp_servers` has {names.count(name)} servers called {_describe_value(name)}; allowed is one."
            yield _Problem(self.where, "mcp_servers", f"{self.where}: {sentence}")
        if not settings.llm.chosen.model:
            sentence = f"`{window}.model` is empty; allowed is the name of a model, because `llm.provider` chooses it."
            yield _Problem(self.where, f"{window}.model", f"{self.where}: {sentence}")


def _expand(text: str, environ: Mapping[str, str]) -> str:
    def variable(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        if match[2] not in environ:
            raise _NotSet(f"`{_shorten(match[0])}`")
        return environ[match[2]]

    return re.sub(r"\$(\$?)\{([^{}]*)\}", variable, text)


def _parse(setting: Setting, text: str) -> object:
    """Parse a value from the environment. A text that does not parse is returned unchanged and refused later."""
    plain = setting.plain_type
    if plain is bool:
        return BOOLEANS.get(text.strip().lower(), text)
    if plain in (int, float):
        with suppress(ValueError):
            return plain(text)
    return text


def _fill(setting: Setting, raw: object, environ: Mapping[str, str]) -> object:
    """Replace the environment variables in a value of the file."""
    kind = get_origin(setting.plain_type)
    if kind is tuple and isinstance(raw, list):
        return [_fill_item(item, environ) for item in raw]
    if kind is dict and isinstance(raw, tuple):
        if len({entry.key for entry in raw}) < len(raw):
            raise ValueError("duplicate key")
        return {entry.key: _fill_item(entry.value, environ) for entry in raw}
    if kind is dict and raw is None:
        return {}
    return _parse(setting, _expand(raw, environ)) if isinstance(raw, str) and "${" in raw else raw


def _fill_item(item: object, environ: Mapping[str, str]) -> object:
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)  # such as a port in a list of texts
    return _expand(item, environ) if isinstance(item, str) else item


def _iter_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for text in pair if isinstance(text, str))


def _convert(setting: Setting, value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a finite number")
    for text in _iter_texts(value):
        text.encode()  # refuses a lone surrogate, which cannot be stored or printed
        if "\0" in text:
            raise ValueError("NUL is not allowed")
    if isinstance(value, str) and setting.is_secret and not value.strip():
        return None
    return msgspec.convert(value, setting.type, dec_hook=dec_hook)


def _describe_value(value: object) -> str:
    if isinstance(value, tuple | list):
        return _describe_kind(value)
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return _shorten(repr(redact(value)))


def _describe_kind(value: object) -> str:
    """Describe a value by its kind only, where the value may be a misplaced secret."""
    return {tuple: "a section", list: "a list", str: "a text", bool: "true or false"}.get(type(value), "a number")


def _shorten(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
    return text if len(text) <= MAX_FOUND_CHARS else f"{text[:MAX_FOUND_CHARS]}…"


def _describe_section(section: Section) -> str:
    return f"a section of {', '.join(section.__struct_fields__)}"
