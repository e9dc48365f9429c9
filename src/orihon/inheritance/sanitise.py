"""What a later run may read of an earlier one: no credential, no name of a person or of a machine.

Names are taken from the row and the metadata of the earlier run and replaced where they stand as whole words. A name
that is an ordinary word (`test`, `main`) or has one or two letters is not replaced in running text: that would hide
nothing, because everybody writes these words, and it would spoil the text. It is replaced where only a name can stand,
as in `@name`, `name@host` and `/home/name`. Home directories lose the name whoever it belongs to.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from msgspec import Struct

from orihon.coerce import decode_json
from orihon.errors import OrihonError
from orihon.records import Metadata, TaskRow
from orihon.redaction import has_mask, mask
from orihon.stores.base import Store

PERSON, MACHINE = "[name]", "[host]"
SHORTEST = 3  # letters of a name that is replaced wherever it stands

# words that are used as names of accounts and machines, and that texts about software are full of
_ORDINARY = (
    "admin administrator agent anonymous api app apps bot build builder ci cli client cloud code container core data "
    "database default demo deploy dev developer docker github gitlab git guest host home http https job jobs linux "
    "local localhost localdomain mac macbook machine main master model name node nobody none null ops orihon postgres "
    "prod production proxy python query root runner server service shell staging system task tasks test tester testing "
    "tests tool tools ubuntu unknown user username users web worker workspace"
)
ORDINARY = frozenset(_ORDINARY.split())

# the name of a directory; a name in Latin letters ends where another script begins, and a full stop ends a sentence
_OWNER = r"(?:[A-Za-z0-9._-]*[A-Za-z0-9_-]|[^/\s\"'`<>:;,()\[\]{}\\]+)"
_HOME = re.compile(rf"(?<![\w.~-])(?:/var)?/(?:home|Users)/{_OWNER}")
_WINDOWS_HOME = re.compile(rf"\b[A-Za-z]:(\\{{1,2}})Users\1{_OWNER}", re.IGNORECASE)
_ON = re.compile(r"process \d+ on (?P<hostname>\S+)")


class Names(Struct, frozen=True):
    """Names of people and of machines."""

    people: frozenset[str] = frozenset()
    machines: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.people | other.people, self.machines | other.machines)


def names_of(store: Store, row: TaskRow) -> Names:
    """Who ran a task, and where, as far as row and metadata say."""
    people, machines = {row.user}, {row.hostname, _holder(row.lease_owner)}
    try:
        for metadata in store.read(row.uuid, Metadata):
            people.add(metadata.user)
            machines.add(metadata.hostname)
    except (OrihonError, OSError, ValueError):
        pass  # the row says it too
    return Names(frozenset(filter(None, people)), frozenset(filter(None, machines)))


def sanitised(text: str, names: Names) -> str:
    """The text masked once more, and without names."""
    text = mask(text)  # addresses too, whatever masking.kinds says: the block names no person
    text = _WINDOWS_HOME.sub("~", _HOME.sub("~", text))
    for pattern, word in _patterns(names):
        text = pattern.sub(word, text)
    return text


def _holder(lease_owner: str | None) -> str | None:
    """The machine that a lease names: in JSON, or in words."""
    if lease_owner is None:
        return None
    try:
        owner = decode_json(lease_owner)
    except ValueError:
        found = _ON.search(lease_owner)
        return found["hostname"] if found else None
    return str(owner["hostname"]) if isinstance(owner, dict) and owner.get("hostname") else None


@functools.lru_cache(maxsize=16)
def _patterns(names: Names) -> tuple[tuple[re.Pattern[str], str], ...]:
    machines = {part for name in names.machines for part in _spellings(name, ".")}
    people = {part for name in names.people for part in _spellings(name, "@")}
    return (*_each(machines, MACHINE), *_each(people, PERSON))


def _spellings(name: str, border: str) -> Iterator[str]:
    """A name, and its first part: of `build-7.example.com` also `build-7`, of a mail address what is before the @."""
    name = name.strip()
    if not has_mask(name):
        yield name
        first = name.partition(border)[0]
        if not first.isdecimal():  # of an address in numbers a part says nothing
            yield first


def _each(names: set[str], word: str) -> Iterator[tuple[re.Pattern[str], str]]:
    """The longest first, so that no name is cut by a shorter one."""
    for name in sorted(filter(None, names), key=lambda one: (-len(one), one)):
        plain = re.escape(name)
        if not name.isascii():  # scripts without spaces have no borders of words
            yield re.compile(plain, re.IGNORECASE), word
        elif len(name) < SHORTEST or name.lower() in ORDINARY:
            yield re.compile(rf"(?<=@){plain}(?![\w.-])|(?<![\w.-]){plain}(?=@)", re.IGNORECASE | re.ASCII), word
        else:
            yield re.compile(rf"(?<![A-Za-z0-9_]){plain}(?![A-Za-z0-9_])", re.IGNORECASE), word
