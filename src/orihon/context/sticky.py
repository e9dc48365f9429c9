"""Sticky files as the window shows them: in full near its head, and later changes at its end.

The head shows the files as of the last fold, summary or clear, so that the prefix does not change. For a later list the
window shows what is new in it, where it was set. The next fold moves it to the head.

A file is enclosed in two marks. A mark inside its text or its name is altered, so that no file can end its own entry
and speak outside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from orihon.context.ranges import Number

BEGIN = "--- CONTEXT ENTRY BEGIN ---\n"
END = "--- CONTEXT ENTRY END ---\n\n"
PATH_CHARS = 1024
NAMED = 10  # files that are named one by one where their texts are not shown

# only the dashes next to the words, so that a long line of dashes costs nothing
_DASH, _GAP = r"[-\u2010-\u2015\u2212]", r"[^\S\n]{1,8}"
_MARK = re.compile(rf"{_DASH}{_GAP}CONTEXT{_GAP}ENTRY{_GAP}(BEGIN|END){_GAP}{_DASH}", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

_WORDS = {
    "en": {
        "head": "The user keeps these files in view:\n",
        "left": "Not shown, because there is no room for them; read them when you need them: {}\n",
        "news": "The files that the user keeps in view have changed. This counts instead of what was shown before.\n",
        "long": "Changed or new, but too long to be shown here; read them when you need them: {}\n",
        "gone": "No longer kept in view: {}\n",
        "more": "and {:,} more",
        "lost": "(the text of this file cannot be read any more)",
    },
    "ja": {
        "head": "ユーザーが常に参照しているファイル:\n",
        "left": "次のファイルは収まらないため表示していません。必要なら読んでください: {}\n",
        "news": "ユーザーが常に参照しているファイルが変わりました。以前に示した内容ではなく、次の内容が有効です。\n",
        "long": "次のファイルは新しくなりましたが、長いためここには示しません。必要なら読んでください: {}\n",
        "gone": "次のファイルは参照対象から外れました: {}\n",
        "more": "ほか {:,} 件",
        "lost": "(このファイルの内容はもう読めません)",
    },
}


class StickyFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a file: the blob with its text, its tokens, and how the file on disk is recognised."""

    path: str
    sha256: str
    size_bytes: Number
    tokens: Number  # of its entry
    mark: tuple[int, ...] = ()

    @property
    def version(self) -> tuple[str, str]:
        """The name and the text, which are all that a reader sees of it."""
        return self.path, self.sha256


class StickyList(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a `sticky` event: all files in their order, and what was declared to find them."""

    files: tuple[StickyFile, ...] = ()
    declared: tuple[str, ...] = ()
    room: Number = 0  # tokens in which to tell what is new
    at_once: bool = False  # nothing was sent yet that could move: it goes to the head


class Entry(msgspec.Struct, frozen=True):
    """A file as the window shows it."""

    path: str
    text: str
    tokens: int


class Head(msgspec.Struct, frozen=True):
    """The files near the head of a window. Files that do not fit are only named."""

    entries: tuple[Entry, ...] = ()
    language: str = "en"
    room: int | None = None

    def within(self, room: int) -> Head:
        """Return the same files in at most this many tokens."""
        whole = 0 < room >= sum(entry.tokens for entry in self.entries)
        return Head(self.entries, self.language, None if whole else max(0, room))

    @property
    def tokens(self) -> int:
        """The tokens of the files that are shown."""
        return sum(entry.tokens for entry in fitting(self.entries, self.room)[0])

    @property
    def text(self) -> str:
        """The text for the model; empty if there is no file, or no room at all."""
        if not self.entries or self.room == 0:
            return ""
        shown, left = fitting(self.entries, self.room)
        words = _WORDS[self.language]
        return words["head"] + "".join(entry.text for entry in shown) + _sentence(words["left"], left, self.language)


class News(msgspec.Struct, frozen=True):
    """The changes of a list, and the message after which they are shown."""

    after: int
    text: str


Load = Callable[[StickyFile], str | None]  # the text of a version; None when it is lost


def entry_text(path: str, text: str) -> str:
    """Return a file between its marks."""
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{BEGIN}[{shown_path(path)}]\n{_escaped(text)}{end}{END}"


def shown_path(path: str) -> str:
    """Return a path in one line, without its middle if it is too long for any file."""
    if len(path) > PATH_CHARS:
        path = f"{path[: PATH_CHARS // 2]}…{path[-PATH_CHARS // 2 :]}"
    return _escaped(_UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", path))


def _escaped(text: str) -> str:
    return _MARK.sub(lambda found: f"[CONTEXT ENTRY {found[1].upper()}, as the file has it]", text)


def make_entries(files: Iterable[StickyFile], load: Load, language: str) -> tuple[Entry, ...]:
    """Return the files with their texts."""
    return tuple(_entry(file, load, language) for file in files)


def _entry(file: StickyFile, load: Load, language: str) -> Entry:
    text = load(file)
    shown = entry_text(file.path, _WORDS[language]["lost"] if text is None else text)
    return Entry(file.path, shown, file.tokens)


def fitting(entries: Sequence[Entry], room: int | None) -> tuple[list[Entry], list[str]]:
    """Return the files that fit, in order, and the paths of the others. A large file does not exclude smaller ones."""
    if room is None:
        return list(entries), []
    found: list[Entry] = []
    left: list[str] = []
    for entry in entries:
        if entry.tokens <= room:
            found.append(entry)
            room -= entry.tokens
        else:
            left.append(entry.path)
    return found, left


def render_changes(before: StickyList, now: StickyList, load: Load, language: str) -> str:
    """Return what is new in a list: the texts that fit, the names of the others, and the names of removed files."""
    words = _WORDS[language]
    known = {file.version for file in before.files}
    entries = make_entries((file for file in now.files if file.version not in known), load, language)
    shown, long = fitting(entries, now.room)
    paths = {file.path for file in now.files}
    gone = [file.path for file in before.files if file.path not in paths]
    parts = [
        *(entry.text for entry in shown),
        _sentence(words["long"], long, language),
        _sentence(words["gone"], gone, language),
    ]
    said = "".join(parts)
    return words["news"] + said if said else ""


def _sentence(words: str, paths: Sequence[str], language: str) -> str:
    return words.format(", ".join(_named(paths, language))) if paths else ""


def _named(paths: Sequence[str], language: str) -> Iterator[str]:
    yield from (shown_path(path) for path in paths[:NAMED])
    if len(paths) > NAMED:
        yield _WORDS[language]["more"].format(len(paths) - NAMED)
