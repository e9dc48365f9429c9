"""How far is a string from the words and names that people write? Random letters are about seven bits a letter away.

A small model of names in source code: how often one letter follows another, and how often a name changes between small
letters, capitals and digits. It tells `rBwMRWOBf94d` from `newPassword`, which entropy alone cannot do at this length.
"""

from __future__ import annotations

from functools import cache
from string import ascii_lowercase, ascii_uppercase, digits

# Row and column are letters; a digit is the cost in bits of the second behind the first. Counted in 156,000 names of
# the standard library, of installed packages and of C headers.
_PAIRS = """
9544775a5a7344b5a34366766a 3757388834837647a457389a59 376637935d445726a45358977c 3674257638957747a54658896b
474465697b945375623386646a 476744892ca47636b45548996c 575818654b946457c445599888 288728984d775837c464698a6b
5644555a9b944235954386b6d6 48662789566767349836386b7b 5745176739867566974658687a 377527793c848736c844579b6a
2576278a4d754743985657a87c 484335394a668646a843569a8a 6544866969644254d34546579a 386637855d5486358354589a59
8877878a7dd277977556188cba 3856276a3d665637c444669b5d 595837744c547555673258796a 386727943c957836b355598649
5556466a4ca34374c33397c8ca 2768178a3da85754c77697868a 386637852b767437b3479989ac 574737974c974763a762859459
565656795ba544619633786977 387817874d966747a876899a66
"""
# The cost of going from one class to the next: small letter, capital, digit, sign.
_CHANGES = {"l": (0.3, 5.0, 7.2, 2.7), "u": (2.8, 0.6, 5.6, 2.5), "d": (4.2, 4.4, 1.3, 1.1), "s": (0.8, 1.5, 6.7, 3.7)}
_NEW_LETTER, _DIGIT = 3.5, 2.0  # a letter that begins a word, a digit
_CLASSES = {"l": ascii_lowercase, "u": ascii_uppercase, "d": digits}
_SIGNS = b"_-."
_OTHER = 6.0  # a pair with any other byte in it
_SLACK = 9.0  # short strings differ more from the average


@cache
def _costs() -> dict[bytes, float]:
    """The cost of every pair of letters, digits and signs of names, computed when it is first needed."""
    bits = [[int(digit, 16) for digit in row] for row in _PAIRS.split()]
    classes = [(name, letter) for name, letters in _CLASSES.items() for letter in letters]
    classes += [("s", chr(sign)) for sign in _SIGNS]
    costs = {}
    for before, first in classes:
        for after, second in classes:
            cost = _CHANGES[before]["luds".index(after)]
            if before in "lu" and after in "lu" and (before, after) != ("l", "u"):
                cost += bits[ord(first.lower()) - 97][ord(second.lower()) - 97]
            elif after in "lu":
                cost += _NEW_LETTER
            elif after == "d":
                cost += _DIGIT
            costs[(first + second).encode()] = cost
    return costs


def surprise(value: bytes) -> float:
    """The mean cost of a pair, in bits: names have about four, random letters and digits about seven."""
    costs = _costs()
    pairs = len(value) - 1
    return sum(costs.get(value[at : at + 2], _OTHER) for at in range(pairs)) / pairs if pairs > 0 else 0.0


def is_odd(value: bytes, *, base: float = 5.2) -> bool:
    """Whether this is no name: one name in a hundred is as odd, and all but a few random strings of ten or more."""
    return surprise(value) >= base + _SLACK / max(1, len(value))
