"""Every beginning of a token in the table, directly behind text that can precede it without a space.

Bodies are generated when the tests run, from a fixed seed, so that no secret scanner finds a token in this file.
"""

from __future__ import annotations

import random
import re
import string
from functools import cache

import pytest

from orihon.redaction import mask
from orihon.redaction.detect_tokens import RULES

GLUES = {
    "a line end": "\n",
    "a line end, escaped": "\\n",
    "a line end, escaped twice": "\\\\n",
    "a line end of Windows, escaped": "\\r\\n",
    "a tab, escaped": "\\t",
    "a quote, escaped": '\\"',
    "a quote as a number": "\\u0022",
    "an equals sign as a number": "\\u003d",
    "an ampersand as a number": "\\u0026",
    "a byte as a number": "\\x3d",
    "a space in a URL": "%20",
    "a quote in a URL": "%22",
    "an equals sign in a URL": "t%3D",
    "a quote in HTML": "&quot;",
    "a number in HTML": "&#34;",
    "a semicolon": "a;",
    "a colour": "\x1b[32m",
    "a colour with its parts": "\x1b[38:2::1:2:3m",
    "a colour, escaped": "\\u001b[1;32m",
    "a colour, escaped in octal": "\\033[32m",
    "a colour in one character": "\x9b32m",
    "a colour in one character, escaped": "\\x9b32m",
    "a colour in one character as a number": "\\u009b0;32m",
    "a colour in a URL": "%1B%5B32m",
    "a colour without its escape": "[32m",
    "a bold colour without its escape": "[0;1;32m",
    "a cursor": "\x1b[2;5H",
    "a device control string": "\x1bPq",
    "a reset": "\x1bc",
    "a character set": "\x1b(B",
    "a path": " /home/alice/projects/shop/",
    "a long path": " /home/alice/projects/shop/backend/settings/production/keys/",
    "a relative path": " src/main/resources/private/keys/",
    "a path of short names": " /a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/",
    "a URL": " https://example.com/api/callbacks/github/",
    "a long URL": " https://example.com/repos/acme/shop/actions/runs/secrets/github/",
    "a removed line": "\n-",
    "an added line": "\n+",
    "a line number": "\n12:",
    "a file and a line number": " notes.txt:12:",
    "a cell": "|",
    "a comma": "1,",
    "an equals sign": "x=",
    "a dot": " a.",
    "an underscore": " _",
    "two hyphens": " --",
}
# Many beginnings without a separator of their own end ordinary words too, so these stand before the others only.
NAMES = {"a letter": " x-", "a name": " key-", "a name in capitals": " MY_", "a line of context": " notes.txt-12-"}
ALPHABETS = (
    string.ascii_letters + string.digits,
    "0123456789abcdef",
    "0123456789ABCDEF",
    string.ascii_uppercase + string.digits,
    string.ascii_letters,
    string.digits,
)
LENGTHS = (12, 16, 17, 20, 24, 26, 30, 32, 35, 38, 40, 43, 54, 60, 66, 80, 104)


@cache
def tokens() -> dict[str, str]:
    """Return a token for each beginning whose body is a run of letters and digits."""
    rng = random.Random(7)
    return {rule.start.decode(): token for rule in RULES if (token := draw(rule, rng))}


def draw(rule, rng: random.Random) -> str | None:
    start = rule.start.decode()
    for length in LENGTHS:
        for letters in ALPHABETS:
            token = start + "".join(rng.choice(letters) for _ in range(length))
            if rule.match(token.encode(), 0, len(token)) and token not in mask(f"x {token} y"):
                return token
    return None


def test_most_of_the_table_is_tested():
    assert len(tokens()) > 0.9 * len({rule.start for rule in RULES})


@pytest.mark.parametrize("glue", GLUES.values(), ids=GLUES)
def test_nothing_hides_the_beginning_of_a_token(glue):
    texts = {start: (token, f"line one{glue}{token} next") for start, token in tokens().items()}
    assert [start for start, (token, text) in texts.items() if token in mask(text)] == []


@pytest.mark.parametrize("glue", NAMES.values(), ids=NAMES)
def test_no_name_hides_the_beginning_of_a_token(glue):
    """Behind a name, only `hf_` is found without a digit in the token."""
    starts = {rule.start.decode() for rule in RULES if rule.inner} & tokens().keys()
    found = {start: tokens()[start] for start in starts if start == "hf_" or re.search(r"\d", tokens()[start])}
    texts = {start: (token, f"line one{glue}{token} next") for start, token in found.items()}
    assert [start for start, (token, text) in texts.items() if token in mask(text)] == []


@pytest.mark.parametrize("glue", GLUES.values(), ids=GLUES)
def test_text_before_a_token_is_kept(glue):
    token = tokens()["ghp_"]
    assert mask(f"line one{glue}{token} next") == f"line one{glue}[GITHUB_TOKEN] next"


@pytest.mark.parametrize("start", ["[", ";", "[3", "\\", "%"])
def test_a_token_that_looks_like_a_terminal_code_is_masked(start):
    token = tokens()["mfp_"]
    assert token not in mask(f"a{start}{token} b")
