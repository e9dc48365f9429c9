"""Does a name name a secret? `api_key` and `dbPassword` do; `max_tokens`, `primary_key` and `token_url` do not."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


def words(text: str) -> frozenset[str]:
    """A set of words, written as words."""
    return frozenset(text.split())


class Kind(Enum):
    """What a name promises about its value, and so how much the value must prove by itself."""

    NOTHING = b""
    PASSWORD = b"PASSWORD"  # people choose it: any odd-looking word counts
    SECRET = b"SECRET"  # between the two
    TOKEN = b"TOKEN"  # machines make it: it must look random
    API_KEY = b"API_KEY"  # as above
    KEY = b"KEY"  # some key or other: it must look very random


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_BUNDLER = re.compile(r"BUNDLE_\w+__(?:COM|ORG|NET|IO|DEV)")  # `user:password` under the name of a host
_PASSWORD = ("password", "passwd", "passphrase", "passcode", "pwd", "pswd")
_SECRET = ("secret", "secrete", "secrets", "credential", "credentials", "creds", "cred")
_KEY = ("apikey", "accesskey", "secretkey", "privatekey", "authkey", "licensekey", "accountkey")
_SHORT = {"pass": Kind.PASSWORD, "dbpass": Kind.PASSWORD, "userpass": Kind.PASSWORD, "pw": Kind.PASSWORD}
_AUTH = frozenset({"auth", "authorization"})

# A key with one of these before it opens something.
_OPENING = words(
    "api access secret private auth encryption signing sign license account master app application service client "
    "storage subscription admin session consumer hmac root ssh sas shared deploy personal project server write "
    "integration ingest webhook customer developer user iam cloud apikey token publishable live test prod"
)
# A key or token with one of these before it opens nothing.
_HARMLESS = words(
    "public pub next previous page continuation sync total max min num count input output prompt completion csrf xsrf "
    "cancellation no is has non use show forgot invalid missing bad wrong unexpected special start end eos bos pad sep "
    "mask unk stop sequence resume authenticity middleware verification starting change"
)
# Nor does a key with one of these.
_HARMLESS_KEY = _HARMLESS | words(
    "primary foreign partition sort cache object bucket schema row index lookup unique dict map hash press board vault "
    "composite candidate idempotency routing dedup translation hot short natural surrogate known host kms column group "
    "json field issuer order parent child sub super any stream range shard registry menu arrow escape enter tab meta "
    "ctrl alt shift color theme"
)
# A name that ends with one of these is about a secret, it does not hold one.
_ABOUT = words(
    "id ids name names url uri file files filename path paths dir type types length size sizes count counts limit "
    "limits max min expiry expires expiration expire ttl hash store vault ring board word words field fields label "
    "hint policy manager provider endpoint version format regex pattern env var variable variables header headers "
    "prefix suffix arn ref refs reference class usage budget index position selector alias algorithm error errors "
    "status rotation enabled required len bytes bits results result event events down up press pressed code codes "
    "input output cost costs price rate stream reader writer parser kind list lists map set sets table column "
    "func function callback handler factory method html md py js ts css json yaml yml txt pem cer crt location "
    "title text placeholder description message messages pair pairs spec template mode options option scheme "
    "host port node iter iterator generator validator issuer service client config settings visible visibility "
    "strength reset confirmation confirm at date time age days seconds hours window line lines offset "
    "thru through sock socket range ranges source target stage schema frame meshing signatures signature audio "
    "distance"
)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind:
    """Judge a name by its words: the last word that speaks of a secret, what qualifies it, and what follows it."""
    parts = [word.lower() for word in _WORDS.findall(name)]
    if _BUNDLER.fullmatch(name):
        return Kind.PASSWORD
    if name in ("PWD", "OLDPWD"):
        return Kind.NOTHING
    for at in range(len(parts) - 1, -1, -1):
        found = _kind_of_word(parts[at], parts[at - 1] if at else "")
        if found is not Kind.NOTHING:
            about = _ABOUT.intersection(parts[at + 1 :]) or (found is Kind.KEY and parts[at + 1 :])
            before = _HARMLESS if found is Kind.TOKEN else _HARMLESS_KEY
            harmless = found not in (Kind.PASSWORD, Kind.SECRET) and (
                "public" in parts or before.intersection(parts[max(0, at - 1) : at])
            )
            return Kind.NOTHING if about or harmless else found
    return Kind.NOTHING


def _kind_of_word(word: str, before: str) -> Kind:
    if word.endswith(_PASSWORD):
        return Kind.PASSWORD
    if word.endswith(_SECRET):
        return Kind.SECRET
    if (word.endswith("token") and word != "jsonwebtoken") or word in _AUTH:
        return Kind.TOKEN
    if word.endswith(_KEY):
        return Kind.API_KEY
    if word == "key" and before:
        return Kind.API_KEY if before in _OPENING else Kind.KEY
    return _SHORT.get(word, Kind.NOTHING)


def looks_secret(name: str) -> bool:
    """Whether a setting, variable or key of this name holds a secret."""
    return kind_of(name) not in (Kind.NOTHING, Kind.KEY)
