"""Everything that commands print goes through this module, which escapes characters that control a terminal.

`say` prints text of one or more lines, `say_line` one line that contains values from outside, `say_table` a table,
`say_json` JSON for programs. Colours come from `Styled` only, and only on a terminal; `NO_COLOR` turns them off. Text
is never taken for markup. A test checks that no command prints in another way.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from orihon.cli._translate import translate
from orihon.errors import SettingsError
from orihon.terminal import encode_json_line, escape, escape_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 10_000  # a program reads complete cells
MIN_WIDTH = 24  # of the column that is cut
MARKS = 4  # a line with more characters per column than this is always cut
MORE = "…"


class Styled(NamedTuple):
    """A text in a colour."""

    text: str
    style: str = ""


def say(*pieces: str | Styled, err: bool = False, nl: bool = True) -> None:
    """Print text of one or more lines."""
    plain = [piece if isinstance(piece, Styled) else Styled(piece) for piece in pieces]
    clean = [piece._replace(text=escape(_mask(piece.text))) for piece in plain]
    if any(piece.style for piece in clean) and (sys.stderr if err else sys.stdout).isatty():
        from rich.text import Text  # noqa: PLC0415 - only for colours

        make_console(err=err).print(Text.assemble(*clean), soft_wrap=True, end="\n" if nl else "")
    else:
        click.echo("".join(piece.text for piece in clean), err=err, nl=nl)


def say_line(*pieces: str | Styled, err: bool = False) -> None:
    """Print one line. Newlines in the text become blanks."""
    plain = [piece if isinstance(piece, Styled) else Styled(piece) for piece in pieces]
    say(*(piece._replace(text=escape_line(piece.text)) for piece in plain), err=err)


def say_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Styled]],
    *,
    shrink: str,
    numbers: Collection[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """Print a table. On a terminal it fits the width: `optional` columns are left out, and those of `shrink` are cut.

    In a pipe every row is complete.
    """
    from rich.table import Table  # noqa: PLC0415 - only for tables

    console = make_console()
    columns = dict(zip(headings, zip(*([_make_cell(cell) for cell in row] for row in rows), strict=True), strict=True))
    widths = {name: max(len(name), *(cell.cell_len for cell in cells)) for name, cells in columns.items()}
    for name in optional:
        if sum(widths.values()) - max(0, widths[shrink] - MIN_WIDTH) + 2 * (len(widths) - 1) > console.width:
            del widths[name]
    room = console.width - sum(widths.values()) + widths[shrink] - 2 * (len(widths) - 1)
    columns[shrink] = tuple(_cut_middle(cell, max(room, len(MORE))) for cell in columns[shrink])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in widths:
        table.add_column(name, no_wrap=name != shrink, justify="right" if name in numbers else "left")
    for cells in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*cells)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _make_cell(cell: str | Styled) -> Text:
    from rich.text import Text  # noqa: PLC0415 - only for tables

    text, style = cell if isinstance(cell, Styled) else Styled(cell)
    return Text(escape_line(_mask(text))[:PIPE_WIDTH], style, no_wrap=True, overflow="ellipsis")


def _cut_middle(cell: Text, width: int) -> Text:
    """Cut a cell in its middle: the end of a key has the number of the issue."""
    if cell.cell_len <= width:
        return cell
    half = (width - 1) // 2
    short = cell.copy()
    short.plain = f"{cell.plain[: width - 1 - half]}{MORE}{cell.plain[len(cell.plain) - half :]}"
    return short


def make_console(*, err: bool = False) -> Console:
    """Return a console of rich that takes text as it is."""
    from rich.console import Console  # noqa: PLC0415 - `--help` and `--json` do not need it

    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    width = None if is_terminal else PIPE_WIDTH
    return Console(stderr=err, markup=False, emoji=False, highlight=False, width=width, force_terminal=is_terminal)


def truncate(text: str, width: int) -> str:
    """Cut a line to `width` columns. A line that was cut ends with an ellipsis."""
    if len(text) > MARKS * width:  # combining marks have no width
        text = text[: MARKS * width] + MORE
    if text.isascii() and len(text) <= width:
        return text
    from rich.text import Text  # noqa: PLC0415 - as above

    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain


def say_json(value: Any) -> None:
    """Print a value, or bytes that already are JSON, on one line."""
    click.echo(_mask(encode_json_line(value)))


def say_notes(notes: list[str]) -> None:
    """Print notes to standard error, one per line."""
    for note in notes:
        say_line(Styled("note     ", "dim"), note, err=True)


def say_problems(problems: list[str]) -> None:
    """Print problems to standard error, one per line."""
    for problem in problems:
        say_line(Styled("problem  ", "red"), problem, err=True)


def say_error(message: str, hint: str = "") -> None:
    """Print an error and its hint to standard error."""
    message, hint = translate(message), translate(hint)
    say(Styled("orihon: ", "bold red"), message, Styled(f"\n  {hint}" if hint else "", "dim"), err=True)


def say_traceback() -> None:
    """Print the traceback of the current exception to standard error."""
    say(traceback.format_exc(), err=True, nl=False)


def _mask(text: str) -> str:
    """Mask secrets: the text may quote the user's input or an old store without masking."""
    from orihon.ingest import mask_output  # noqa: PLC0415 - `--help` does not need it

    return mask_output(text)


class LogFormatter(logging.Formatter):
    """Formats log records, including tracebacks, without characters that control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escape(super().format(record))


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append the log to a private file for the length of a block. Warnings still go to standard error."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"The log cannot be written to {path}: {error.strerror}.", where="log_file") from error
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log = logging.getLogger("orihon")
    level, beside = log.level, [logging.lastResort] if logging.lastResort is not None and not log.handlers else []
    for each in (handler, *beside):
        log.addHandler(each)
    log.setLevel(min(log.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        for each in (handler, *beside):
            log.removeHandler(each)
        log.setLevel(level)
        handler.close()


def guard_streams() -> None:
    """Escape log records that no handler formats, and characters that the encoding of the terminal lacks."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(message)s"))
    handler.setLevel(logging.WARNING)
    logging.lastResort = handler
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
