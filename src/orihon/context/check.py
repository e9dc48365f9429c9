"""The check of a summary that a model wrote: what is wrong with it, in a sentence that the model can act on.

A summary counts only if it is long enough for what it covers and shorter than it, is no refusal and no question, is in
the right language, names nothing that is not there, and names what the covered part kept using. A model that only
answers politely, or writes about something else, is refused. Nothing here asks a model.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Sequence

from msgspec import Struct

from orihon.context.names import TOKEN, is_name, trim
from orihon.records import Message
from orihon.tokens import Counter

LEAST_TOKENS, MOST_LEAST_TOKENS = 8, 100  # the least length of a summary, of a little and of much
LEAST_SHARE = 0.003  # of what it covers
NAMES = 24  # the names that are looked for
NEEDED_NAMES = 4  # fewer names than these say little about a summary
NAMES_PER_NAMED = 8  # a summary names one of so many, at least; the others are appended to it
SHOWN_NAMES = 12  # in a complaint
LOOK_CHARS = 20_000  # of one message
OPENING_CHARS = 300  # of a summary, where a refusal or a question stands
FOREIGN_SHARE = 0.2  # of the letters of an English text that may be Japanese

_HANDLE = re.compile(r"\bm(\d{1,9})\b")
_REFUSAL = re.compile(
    r"\W*(?:(?:i['\u2019]m|i am) (?:sorry|afraid|unable|not able)|(?:i )?apologi[sz]e|sorry\b|as an ai\b"
    r"|i (?:can ?not|can['\u2019]?t|won['\u2019]t)\b|unfortunately,? i\b)"
    r"|\W*(?:申し訳|すみません|ごめんなさい|恐れ入りますが|残念ながら)"
    r"|.{0,60}(?:お手伝い|要約|対応|お答え)(?:は|を|が|することは)?(?:でき(?:ません|ない|かね)|いたしかね)",
    re.IGNORECASE,
)
_REQUEST_BACK = re.compile(
    r"\b(?:please|could you|can you|would you|kindly) (?:\w+ ){0,2}"
    r"(?:provide|share|paste|send|give|clarify|specify|tell)\b"
    r"|\b(?:what|which|how|where|would|do|shall|should|may|can) (?:\w+ ){0,3}(?:you|i|we)\b[^.\n]{0,120}\?"
    r"|(?:提供|共有|貼り付け|送信|指定|教え|お送り|お知らせ)(?:して|て)?(?:ください|下さい|いただけ|もらえ)"
    r"|(?:でしょう|です|ます|ません)か[?\uff1f]",
    re.IGNORECASE,
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\S*[/\\_.]\S*", re.DOTALL)
_KANA = re.compile(r"[぀-ヿ]")
_LETTER = re.compile(r"[A-Za-z぀-ヿ一-鿿]")
_LANGUAGES = {"en": "English", "ja": "Japanese"}
_COMPLAINTS = {
    "en": "Your last summary was refused: {}. Write it again.",
    "ja": "前回の要約は受け付けられませんでした: {}。書き直してください。",
}


class Covered(Struct, frozen=True, kw_only=True):
    """What a summary is to stand for."""

    seqs: frozenset[int]
    tokens: int
    names: tuple[str, ...]  # that the conversation kept using, the most used first
    language: str
    max_tokens: int

    @property
    def min_tokens(self) -> int:
        """The least length of a summary."""
        least = min(MOST_LEAST_TOKENS, max(LEAST_TOKENS, int(self.tokens * LEAST_SHARE)))
        return min(least, self.max_tokens // 2, self.tokens // 2)


def find_objection(text: str, covered: Covered, counter: Counter) -> str:
    """Return what is wrong with a summary; empty if nothing is."""
    if not isinstance(text, str) or not text.strip():
        return "the summary is empty"
    checks = (
        _find_wrong_length(counter.text(text), covered),
        _find_invented_handle(text, covered.seqs),
        "this is a refusal or a question, not a summary" if is_refusal(text) else "",
        "" if is_in_language(text, covered.language) else f"the summary is not in {_LANGUAGES[covered.language]}",
        _find_forgotten(text, covered.names),
    )
    return next(filter(None, checks), "")


def complain(problem: str, language: str) -> str:
    """Return what the model is told when it is asked again."""
    return _COMPLAINTS["ja" if language == "ja" else "en"].format(problem)


def is_refusal(text: str) -> bool:
    """Return whether a text refuses to summarise, or asks for something instead."""
    opening = text.strip()[:OPENING_CHARS]
    if _REFUSAL.match(opening):
        return True
    is_short = len(text.strip()) <= OPENING_CHARS  # a long text that quotes a question is a summary
    return is_short and _REQUEST_BACK.search(opening) is not None


def is_in_language(text: str, language: str) -> bool:
    """Return whether a text is in Japanese, or in another language. Paths, symbols and code do not count."""
    said = _CODE.sub(" ", text)
    kana, letters = len(_KANA.findall(said)), len(_LETTER.findall(said))
    return kana > 0 if language == "ja" else kana <= FOREIGN_SHARE * letters


def find_names(message: Message) -> set[str]:
    """Return the names in a message and in the arguments of its calls."""
    texts = [message.text, *(call.arguments for call in message.tool_calls)]
    found = {trim(token) for text in texts for token in TOKEN.findall(text[:LOOK_CHARS])}
    return {name for name in found if 6 <= len(name) <= 120 and is_name(name)}  # noqa: PLR2004


def find_kept_names(messages: Sequence[Message]) -> list[str]:
    """Return the names that the conversation kept using: in two messages at least, one of them the agent's."""
    places: Tally[str] = Tally()
    agent: set[str] = set()
    for message in messages:
        found = find_names(message)
        places.update(found)
        if message.role == "assistant":
            agent |= found
    often = [(count, name) for name, count in places.items() if count > 1 and name in agent]
    return [name for _, name in sorted(often, key=lambda item: (-item[0], item[1]))[:NAMES]]


def _find_wrong_length(tokens: int, covered: Covered) -> str:
    if tokens > covered.max_tokens:
        return f"the summary has {tokens:,} tokens; to be worth it, it may have {covered.max_tokens:,}"
    if tokens < covered.min_tokens:
        return f"the summary has {tokens:,} tokens, too few for the {covered.tokens:,} that it covers"
    return ""


def _find_invented_handle(text: str, seqs: frozenset[int]) -> str:
    invented = [handle for handle in _HANDLE.findall(text) if int(handle) not in seqs]
    return f"the summary names m{invented[0]}, which is not among the messages" if seqs and invented else ""


def _find_forgotten(text: str, names: Sequence[str]) -> str:
    """Return the complaint that a summary names too little of what was worked on."""
    missing = [name for name in names if name not in text]
    if len(names) < NEEDED_NAMES or len(names) - len(missing) >= max(1, len(names) // NAMES_PER_NAMED):
        return ""
    return f"the summary does not say what became of {', '.join(missing[:SHOWN_NAMES])}"
