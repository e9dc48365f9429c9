"""Names of people and machines, which a later run must not read.

Names are taken from the row and the metadata of the earlier run and replaced where they stand as whole words. A name
that is an ordinary word (`test`, `main`) or has one or two letters is not replaced in running text: it would hide
nothing and make the text unreadable. It is replaced where only a name can stand, as in `@name`, `name@host` and
`/home/name`. The names of home directories are always removed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from msgspec import Struct

from orihon.coerce import decode_json
from orihon.errors import OrihonError
from orihon.inheritance.outline import read_people
from orihon.records import Metadata, TaskRow
from orihon.redaction import has_mask, mask
from orihon.stores.base import Store

PERSON, MACHINE, PHONE = "[name]", "[host]", "[phone]"
MIN_NAME_CHARS = 3  # a shorter name is replaced only where nothing but a name can stand

# words that are used as names of accounts and machines, and that are common in texts about software
_ORDINARY = (
    "admin administrator agent anonymous api app apps bot build builder ci cli client cloud code container core data "
    "database default demo deploy dev developer docker github gitlab git guest host home http https job jobs linux "
    "local localhost localdomain mac macbook machine main master model name node nobody none null ops orihon postgres "
    "prod production proxy python query root runner server service shell staging system task tasks test tester testing "
    "tests tool tools ubuntu unknown user username users web worker workspace"
)
ORDINARY = frozenset(_ORDINARY.split())

# the name of a directory; a name in Latin letters ends where another script begins, and before a final full stop
_OWNER = r"(?:[A-Za-z0-9._-]*[A-Za-z0-9_-]|[^/\s\"'`<>:;,()\[\]{}\\]+)"
_HOME = re.compile(rf"(?<![\w.~-])(?:/var)?/(?:home|Users)/{_OWNER}")
_WINDOWS_HOME = re.compile(rf"\b[A-Za-z]:(\\{{1,2}})Users\1{_OWNER}", re.IGNORECASE)
# a name before a mail address, as in a commit; a Japanese name with its honorific; a telephone number; a mention
_NAME_WORD = r"[^\W\d_][\w.'\u2019-]*"
_SIGNED = re.compile(rf"(?:{_NAME_WORD}[ \u3000]){{0,3}}{_NAME_WORD}(?= <(?:\[EMAIL\]|[^\s<>@]+@[^\s<>]+)>)")
_ADDRESSED = re.compile(r"(?<![一-鿿ぁ-ん])(?![皆各])[一-鿿]{2,4}(?=さん(?![一-鿿])|氏(?![名一-鿿]))")
_PHONE = re.compile(
    r"(?<![\w.+/-])(?:\+\d{1,3}[ -]?\(?\d{1,4}\)?(?:[ -]\d{2,4}){2,3}|0\d{1,4}-\d{1,4}-\d{4}|\(\d{3}\) ?\d{3}-\d{4}"
    r"|\d{3}-\d{3}-\d{4})(?![\w-])"
)
_MENTION = re.compile(
    r"(?<![\w.@/`'\"$\\-])(?:(?<!^)|(?=@[\w-]+[ ,\u3001]+[a-zぁ-んァ-ヶ一-鿿]))"
    r"@([A-Za-z][A-Za-z0-9-]{1,38})(?![A-Za-z0-9_/.(=:\"'-])",
    re.MULTILINE,
)
_TAG_WORDS = (  # of documentation and style sheets
    "param params return returns type typedef template throws example default deprecated see since link private public "
    "internal override import media keyframes charset supports layer apply tailwind todo module file ts-ignore "
    "ts-expect-error property prop class function author version nullable"
)
_TAGS = frozenset(_TAG_WORDS.split())
_ON = re.compile(r"process \d+ on (?P<hostname>\S+)")


class Names(Struct, frozen=True):
    """Names of people and of machines."""

    people: frozenset[str] = frozenset()
    machines: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(self.people | other.people, self.machines | other.machines)


def collect_names(store: Store, row: TaskRow) -> Names:
    """Return the users and the machines of a task, as its row and its metadata give them."""
    people, machines = {row.user, *read_people(row)}, {row.hostname, _find_lease_host(row.lease_owner)}
    try:
        for metadata in store.read(row.uuid, Metadata):
            people.add(metadata.user)
            machines.add(metadata.hostname)
    except (OrihonError, OSError, ValueError):
        pass  # the row has them too
    return Names(frozenset(filter(None, people)), frozenset(filter(None, machines)))


def remove_names(text: str, names: Names) -> str:
    """Return the text without names, and masked once more."""
    text = mask(text)  # mail addresses too, whatever masking.kinds says
    text = _WINDOWS_HOME.sub("~", _HOME.sub("~", text))
    text = _PHONE.sub(PHONE, _SIGNED.sub(PERSON, _ADDRESSED.sub(PERSON, text)))
    text = _MENTION.sub(lambda found: found.group() if found[1].lower() in _TAGS else f"@{PERSON}", text)
    for pattern, word in _compile_patterns(names):
        text = pattern.sub(word, text)
    return text


def _find_lease_host(lease_owner: str | None) -> str | None:
    """Return the machine that a lease names, in JSON or in a sentence."""
    if lease_owner is None:
        return None
    try:
        owner = decode_json(lease_owner)
    except ValueError:
        match = _ON.search(lease_owner)
        return match["hostname"] if match else None
    return str(owner["hostname"]) if isinstance(owner, dict) and owner.get("hostname") else None


@functools.lru_cache(maxsize=16)
def _compile_patterns(names: Names) -> tuple[tuple[re.Pattern[str], str], ...]:
    machines = {part for name in names.machines for part in _spellings(name, ".")}
    people = {part for name in names.people for part in _spellings(name, "@")}
    return (*_compile_names(machines, MACHINE), *_compile_names(people, PERSON))


def _spellings(name: str, border: str) -> Iterator[str]:
    """Yield a name and its first part: `build-7` of `build-7.example.com`, and the part of an address before the @."""
    name = name.strip()
    if not has_mask(name):
        yield name
        first = name.partition(border)[0]
        if not first.isdecimal():  # a part of a numeric address is not a name
            yield first


def _compile_names(names: set[str], word: str) -> Iterator[tuple[re.Pattern[str], str]]:
    """Yield a pattern for each name, the longest first, so that no name is cut by a shorter one."""
    for name in sorted(filter(None, names), key=lambda name: (-len(name), name)):
        plain = re.escape(name)
        if not name.isascii():  # scripts without spaces have no word borders
            yield re.compile(plain, re.IGNORECASE), word
        elif len(name) < MIN_NAME_CHARS or name.lower() in ORDINARY:
            yield re.compile(rf"(?<=@){plain}(?![\w.-])|(?<![\w.-]){plain}(?=@)", re.IGNORECASE | re.ASCII), word
        else:
            yield re.compile(rf"(?<![A-Za-z0-9_]){plain}(?![A-Za-z0-9_])", re.IGNORECASE), word
