"""A page: its data, which is its JSON, and the template that shows them in the language of the browser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request

from orihon import terminal
from orihon._prompts import read_table
from orihon.ops.access import AuthorizedStore
from orihon.task.reader import Reader
from orihon.terminal import Language, escape_page_text
from orihon.view import prose
from orihon.view.calls import CallIndex, TaskCalls

NONE = "-"


class Page(msgspec.Struct, frozen=True):
    """What a page shows. Its data are the JSON of the page; `more` is for the template only."""

    template: str
    data: dict[str, Any]
    more: dict[str, Any] = {}


class Viewer:
    """The store, what is remembered of it, and the templates."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        self.authorized = authorized
        self.calls = CallIndex()
        self.is_closing: Callable[[], bool] = lambda: False  # whether the server ends
        self._environment = _make_environment()

    @staticmethod
    def fresh_calls(reader: Reader) -> TaskCalls:
        """Return the calls of a task without remembering them: a list has many tasks."""
        calls = TaskCalls()
        calls.read(reader)
        return calls

    def article(self, entry: Any, language: Language, uuid: str) -> str:
        """Return one message of a conversation as HTML."""
        parts: Any = self._environment.get_template("_parts.html").module
        return str(parts.article(entry, Words(language), uuid))

    def render(self, page: Page, language: Language, request: Request) -> str:
        """Return a page as HTML."""
        template = self._environment.get_template(page.template)
        words = Words(language)
        return template.render(
            {
                "t": words,
                "lang": language,
                "path": request.url.path,
                "query": request.url.query,
                "duration": words.duration,
                **page.data,
                **page.more,
            }
        )


class Words:
    """The texts of the pages in one language."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language
        self._texts = read_table("orihon.view", "texts", language)

    def __call__(self, name: str, /, **values: Any) -> str:
        """Return a text with its values filled in."""
        return self._texts[name].format(**values)

    def duration(self, seconds: float | None) -> str:
        """Return a duration in the language of the page."""
        return NONE if seconds is None else terminal.format_duration(seconds, self.language)


def choose_language(request: Request) -> Language:
    """Return the first of our languages that the browser asks for."""
    for wanted in request.headers.get("accept-language", "").lower().split(","):
        tag = wanted.split(";")[0].strip().split("-")[0]
        if tag == "ja":
            return "ja"
        if tag == "en":
            return "en"
    return "en"


def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("orihon.view"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "short": _shorten_number,
        "time": _format_time,
        "markdown": prose.render_markdown,
        "output": prose.render_output,
        "cut": prose.cut,
        "line": terminal.shorten,
        "size": _format_size,
        "dollars": _format_dollars,
    }
    return environment


def _visible(value: Any) -> Any:
    """Make control characters visible in everything that a template prints. HTML that we made stays."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else escape_page_text(value)


def _shorten_number(value: float) -> str:
    """Return `950`, `12.3k` or `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{value:,.0f}"


def _format_time(stored: str | None) -> Markup | str:
    """Return a stored time in the time zone of the server."""
    try:
        moment = datetime.fromisoformat(stored or "").astimezone()
    except ValueError:
        return stored or NONE
    shown = moment.strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.isoformat(timespec="seconds"), moment.strftime("%Y-%m-%d %H:%M:%S %Z"), shown
    )


def _format_dollars(dollars: float) -> str:
    """Return `$0.0042` or `$12.30`."""
    return f"${dollars:,.2f}" if dollars >= 1 or not dollars else f"${dollars:.2g}"


def _format_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004 - a kilobyte
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
