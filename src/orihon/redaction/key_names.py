"""Decide from a name whether its value is secret.

`api_key` and `dbPassword` name secrets; `max_tokens`, `primary_key` and `token_url` do not. Values are not examined.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """What a name says about its value, and therefore how much evidence the value itself must give."""

    NOTHING = b""
    PASSWORD = b"PASSWORD"  # chosen by people: any unusual word counts
    PASS = b"PASS"  # `--- PASS:`, `pwd`: the word has other meanings, so the value must look random
    SECRET = b"SECRET"  # between PASSWORD and TOKEN
    TOKEN = b"TOKEN"  # generated: it must look random
    API_KEY = b"API_KEY"  # as TOKEN
    KEY = b"KEY"  # any key: it must look very random

    @property
    def mask(self) -> bytes:
        """The mask for a value of this kind."""
        return {Kind.PASS: b"PASSWORD", Kind.KEY: b"API_KEY"}.get(self, self.value)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PASSWORD = tuple(
    _words("password passwd passphrase passcode psk pswd passwort masterauth motdepasse senha contrasena kennwort")
)
_PASSWORDS = tuple(f"{word}s" for word in _PASSWORD)  # several passwords, or text about them
_SECRET = ("secret", "secrete", "secrets", "credential", "credentials", "mnemonic")
_SHORT = ("pwd", "pw", "pass", "psw", "creds", "cred")  # ambiguous alone, clear behind another word
_PREFIXES = _words(
    "db user admin root mysql pg smtp imap mail ssh ftp my login key store keystore truststore require master sudo "
    "become proxy redis mongo ldap sql postgres svn http rpc app ansible"
)
_ROUNDS = _words(
    "first second third last next final single multi full one two render shadow light depth test dry build"
)
_AUTH = _words("auth authorization bearer")

# A key that follows one of these words grants access.
_OPENING = _words(
    "api access secret private auth encryption signing sign license account master app application service client "
    "storage subscription admin session consumer hmac root ssh sas shared deploy personal project server write "
    "integration ingest webhook customer developer user iam cloud apikey token publishable live test prod wallet"
)
_KEYS = tuple(f"{word}key" for word in sorted(_OPENING - _words("sign live test prod write app user admin token")))
# A key or token that follows one of these words does not.
_HARMLESS = _words(
    "public pub next previous page continuation sync total max min num count input output prompt completion csrf xsrf "
    "cancellation no is has non use show forgot invalid missing bad wrong unexpected special start end eos bos pad sep "
    "mask unk stop sequence resume authenticity middleware verification starting change lock idempotency"
)
_HARMLESS_KEY = _HARMLESS | _words(
    "primary foreign partition sort cache object bucket schema row index lookup unique dict map hash press board vault "
    "composite candidate routing dedup translation hot short natural surrogate known host kms column group "
    "json field issuer order parent child sub super any stream range shard registry menu arrow escape enter tab meta "
    "ctrl alt shift color theme"
)
# A name that ends with one of these words describes a secret; it does not hold one.
_ABOUT = _words(
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
    "distance hasher encoder hashing encoding check checks startswith endswith contains icontains exact isnull used"
)


@lru_cache(maxsize=4096)
def classify_name(name: str) -> Kind:
    """Return the kind of the last word that speaks of a secret, unless the words around it make it harmless."""
    if name in ("PWD", "OLDPWD"):
        return Kind.NOTHING
    words = _WORD.findall(name)
    parts = [word.lower() for word in words]
    for at in range(len(parts) - 1, -1, -1):
        kind = _classify_word(parts, at, upper=name.isupper())
        if kind is not Kind.NOTHING:
            about = _ABOUT.intersection(parts[at + 1 :]) or (kind is Kind.KEY and parts[at + 1 :])
            before = _HARMLESS if kind is Kind.TOKEN else _HARMLESS_KEY
            harmless = kind not in (Kind.PASSWORD, Kind.PASS, Kind.SECRET) and (
                "public" in parts or before.intersection(parts[max(0, at - 1) : at])
            )
            return Kind.NOTHING if about or harmless else kind
    return Kind.NOTHING


def _classify_word(parts: list[str], at: int, *, upper: bool) -> Kind:  # noqa: PLR0911 - one line for each kind
    word, before, last = parts[at], parts[at - 1] if at else "", at == len(parts) - 1
    if word.endswith(_PASSWORD) or (word == "passe" and before == "de"):  # mot de passe
        return Kind.PASSWORD
    if word.endswith(_PASSWORDS):
        return Kind.PASS
    if word.endswith(_SECRET):
        return Kind.SECRET
    if word.endswith("token") and word != "jsonwebtoken":
        return Kind.TOKEN
    if word.endswith(_KEYS):
        return Kind.API_KEY
    if word == "key" and before:
        return Kind.API_KEY if before in _OPENING else Kind.KEY
    if (word in _AUTH and (last or parts[-1] == "salt")) or (word == "pat" and last and before):
        return Kind.TOKEN
    return _classify_short(word, before, upper=upper) if last or before in _PREFIXES else Kind.NOTHING


def _classify_short(word: str, before: str, *, upper: bool) -> Kind:
    """Classify `pwd`, `pass` and the like: `db_pwd` and `dbpass` are passwords, `pwd` alone may be a directory."""
    for short in _SHORT:
        if word == short or (word.endswith(short) and word.removesuffix(short) in _PREFIXES):
            if short.startswith("cred"):
                return Kind.SECRET
            named = before in _PREFIXES or word != short or (upper and before and before not in _ROUNDS)
            return Kind.PASSWORD if named else Kind.PASS
    return Kind.NOTHING


def looks_secret(name: str) -> bool:
    """Return whether a setting, variable or key of this name holds a secret."""
    return classify_name(name) not in (Kind.NOTHING, Kind.KEY)
