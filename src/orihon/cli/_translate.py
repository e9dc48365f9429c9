"""Help and errors in Japanese, for a Japanese locale.

`texts.ja.txt` has pairs of lines: the English text as it stands in the code, with `{}` for each value, and the Japanese
one with the values in the same order. A text that is not listed stays English. The output of `--json` is never
translated.
"""

from __future__ import annotations

import inspect
import os
import re
import unicodedata
from collections.abc import Iterator
from copy import copy
from functools import cache
from importlib import resources

import click

from orihon.terminal import detect_language

EXAMPLES = "\b\n"
CLICK_MODULES = (click.core, click.decorators, click.exceptions, click.formatting, click.parser, click.types)
NOT_FIRST = "、。」』）】,.)…"  # noqa: RUF001 - a line does not begin with these
_NEXT_SENTENCE = re.compile(r"(?<=\.) (?=[A-Z`])")
_TOKEN = re.compile(r"[!-~]+|\s+|.", re.DOTALL)


def is_japanese() -> bool:
    """Return whether help and errors are shown in Japanese."""
    return detect_language(os.environ) == "ja"


def prepare_click() -> None:
    """Let click show its own texts in Japanese too, and wrap lines that have no spaces."""
    for module in CLICK_MODULES:
        if hasattr(module, "_"):
            setattr(module, "_", _translate_template)  # noqa: B010 - a name that mypy does not see
    click.formatting.wrap_text = wrap_text


def translate(text: str) -> str:
    """Return a text in the language of the locale. Its values stay as they are, unless they are texts themselves."""
    return (_find_sentences(text) or _find(text)) if text and is_japanese() else text


def localise(command: click.Command) -> click.Command:
    """Return a command with its help and that of its options in the language of the locale. Its examples stay."""
    if not is_japanese():
        return command
    command = copy(command)
    command.params = list(map(copy, command.params))
    prose, mark, examples = inspect.cleandoc(command.help or "").partition(EXAMPLES)
    paragraphs = [_find(" ".join(paragraph.split())) for paragraph in prose.strip().split("\n\n")]
    command.help = "\n\n".join(paragraphs) + (f"\n\n{mark}{examples}" if mark else "")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.help:
            parameter.help = _find(" ".join(parameter.help.split()))
    return command


def _find_sentences(text: str) -> str:
    """Translate a message with the hint behind it, which are two texts. Return nothing for a text that is one."""
    if text in _load()[0]:
        return ""
    for end in _NEXT_SENTENCE.finditer(text):
        message, hint = text[: end.start()], text[end.end() :]
        if (found := _find(message)) != message and (found_hint := _find(hint)) != hint:
            return found + found_hint
    return ""


def _find(text: str) -> str:
    texts, patterns = _load()
    if text in texts:
        return texts[text]
    for pattern, template in patterns:
        if match := pattern.fullmatch(text):
            return template.format(*(texts.get(value, value) for value in match.groups()))
    return text


def _translate_template(text: str) -> str:
    """Translate a template of click's, whose values have names, in a Japanese locale."""
    if not is_japanese():
        return text
    names = re.findall(r"\{\w+(?:!r)?\}", text)
    found = _load()[0].get(re.sub(r"\{\w+(?:!r)?\}", "{}", text))
    return text if found is None else found.format(*names)


@cache
def _load() -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """Return the texts, and those with values as patterns, the most specific first."""
    content = resources.files("orihon.cli").joinpath("texts.ja.txt").read_text(encoding="utf-8")
    texts = dict(pair.split("\n") for pair in content.strip().split("\n\n"))
    templates = sorted((text for text in texts if "{}" in text), key=lambda text: -len(text.replace("{}", "")))
    return texts, [
        (re.compile("(.+?)".join(map(re.escape, text.split("{}"))), re.DOTALL), texts[text]) for text in templates
    ]


def wrap_text(
    text: str,
    width: int = 78,
    initial_indent: str = "",
    subsequent_indent: str = "",
    preserve_paragraphs: bool = False,  # noqa: FBT001, FBT002, ARG001 - as click calls it
) -> str:
    """Wrap paragraphs to a width in columns, in which a Japanese character has two. Examples keep their lines."""
    done = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            lines = paragraph.lstrip().removeprefix("\b").strip("\n").split("\n")
            done.append("\n".join(f"{initial_indent}{line}" for line in lines))
            continue
        lines = list(_wrap(paragraph, width - len(subsequent_indent)))
        indents = (initial_indent, *[subsequent_indent] * len(lines))
        done.append("\n".join(f"{indent}{line}" for indent, line in zip(indents, lines, strict=False)))
    return "\n\n".join(done)


def _wrap(text: str, width: int) -> Iterator[str]:
    line, columns = "", 0
    for token in _TOKEN.findall(" ".join(text.split())):
        size = _count_columns(token)
        if line and columns + size > width and token not in NOT_FIRST:
            yield line.rstrip()
            line, columns = "", 0
            token = token.lstrip()  # noqa: PLW2901 - a line does not begin with a space
            size = _count_columns(token)
        line, columns = line + token, columns + size
    if line:
        yield line.rstrip()


def _count_columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
