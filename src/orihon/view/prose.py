"""Texts of a transcript as safe HTML: Markdown, terminal colours, diffs, and bounded plain text.

A transcript is hostile until shown otherwise. HTML in Markdown is text, pictures are not fetched, only links to the
web can be followed, and every control character is made visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from orihon.terminal import escape_page_text

MAX_MARKDOWN_CHARS = 20_000  # a longer text is shown as it is
MAX_LINE_CHARS = 4_000  # a line of a result is cut here on a page; the page of the message has all of it

_SGR = re.compile(r"\x1b\[([0-9;]{0,40})m")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78cM])")
_DIFF_START = re.compile(r"^(?:diff --git |--- .*\n\+\+\+ |@@ -\d+)", re.MULTILINE)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class _Renderer(RendererHTML):
    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:  # noqa: ARG002
        """Show the words and the address of a picture. Fetching it would tell another host who reads."""
        token = tokens[idx]
        return str(Markup('<span class="unfetched">[{}: {}]</span>').format(token.content, token.attrGet("src") or ""))

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: MutableMapping[str, Any]) -> str:
        tokens[idx].attrs["rel"] = "noopener noreferrer nofollow"
        return self.renderToken(tokens, idx, options, env)


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "maxNesting": 30}, renderer_cls=_Renderer)
    markdown.enable("table")
    markdown.validateLink = _is_web_link  # type: ignore[method-assign]
    return markdown


def _is_web_link(url: str) -> bool:
    return url.startswith(("http://", "https://"))


_MARKDOWN = _make_markdown()


def render_markdown(text: str) -> Markup:
    """Return Markdown as HTML. Headings begin below those of the page."""
    text = escape_page_text(text)
    if len(text) > MAX_MARKDOWN_CHARS:
        return Markup('<pre class="plain">{}</pre>').format(text)
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704 - HTML in the text was escaped


def render_output(text: str) -> Markup:
    """Return what a tool printed: a diff with its lines marked, else with the colours of the terminal."""
    if _DIFF_START.search(text[:4000]):
        return Markup("").join(_diff_lines(text))
    if "\x1b" in text:
        return Markup("").join(_coloured(text))
    return escape(escape_page_text(text))


def _diff_lines(text: str) -> Iterator[Markup]:
    for line in _ESCAPES.sub("", text).split("\n"):
        shown = escape_page_text(line)
        kind = ""
        if line.startswith(("+++", "---", "diff --git", "index ")):
            kind = "diff-file"
        elif line.startswith("@@"):
            kind = "diff-place"
        elif line.startswith("+"):
            kind = "diff-added"
        elif line.startswith("-"):
            kind = "diff-removed"
        yield Markup('<span class="{}">{}</span>\n').format(kind, shown) if kind else escape(shown + "\n")


def _coloured(text: str) -> Iterator[Markup]:
    """Yield the pieces between two changes of the colour; other escapes do nothing."""
    classes: dict[str, str] = {}
    position = 0
    for match in _SGR.finditer(text):
        yield _piece(text[position : match.start()], classes)
        _change(classes, match[1])
        position = match.end()
    yield _piece(text[position:], classes)


def _piece(text: str, classes: dict[str, str]) -> Markup:
    shown = escape_page_text(_ESCAPES.sub("", text))
    if not shown or not classes:
        return escape(shown)
    return Markup('<span class="{}">{}</span>').format(" ".join(classes.values()), shown)


def _change(classes: dict[str, str], codes: str) -> None:
    for code in [int(code or "0") for code in codes.split(";")[:16]]:
        if code == 0:
            classes.clear()
        elif code in {1, 2, 3, 4}:
            classes[str(code)] = ("ansi-bold", "ansi-faint", "ansi-italic", "ansi-underline")[code - 1]
        elif code == 22:  # noqa: PLR2004 - ECMA-48
            classes.pop("1", None)
            classes.pop("2", None)
        elif 30 <= code <= 37 or 90 <= code <= 97:  # noqa: PLR2004
            classes["colour"] = f"ansi-{_COLOURS[code % 10]}"
        elif code == 39:  # noqa: PLR2004
            classes.pop("colour", None)


def cut(text: str, max_chars: int, max_lines: int) -> tuple[str, int]:
    """Return the beginning of a text, and how many of its characters were left out."""
    lines = text[:max_chars].split("\n", max_lines)
    kept = "\n".join(lines[:max_lines])
    return kept, len(text) - len(kept)
