"""Who is asking: the user that a token or the environment names, and whether that user is an administrator.

Without `access.tokens` the caller is trusted: `ORIHON_USER` names the user, and without it the caller is the owner of
the files, who is an administrator. With `access.tokens` nothing but a token counts. The token comes from
`ORIHON_TOKEN` or from the `token` argument of `orihon.open`, never from the command line, where `ps` shows it.

This module decides who is asking. It does not protect the files: a user who can read them needs no token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from orihon.coerce import text_of, text_or_none
from orihon.errors import AccessDenied, SettingsError, UsageError
from orihon.settings.schema import Settings
from orihon.settings.section import Secret

USER = "ORIHON_USER"
TOKEN = "ORIHON_TOKEN"  # noqa: S105 - the name of the variable


class Principal(msgspec.Struct, frozen=True):
    """A user, as far as access is concerned."""

    user: str
    admin: bool = False

    @property
    def scope(self) -> str | None:
        """The user whose tasks are visible; None means those of all users."""
        return None if self.admin else self.user


NOBODY = Principal("")


class Notes(Protocol):
    """Where lines about looks go: the audit of a store."""

    def add(self, **what: Any) -> None:
        """Append a line."""


class Trail:
    """The audit as one caller fills it: each line names the user and the command."""

    def __init__(self, audit: Notes | None, who: Principal, through: str) -> None:
        self.audit, self.who, self.through = audit, who, through

    def looked(self, at: str, read: Sequence[str], **what: Any) -> None:
        """Write down what was looked at; `read` names the parts that were read."""
        self._add(at, **what, read=list(read))

    def asked(self, at: str, read: Sequence[str], user: str | None, **what: Any) -> None:
        """Write down what a list was asked for; one of another user's tasks is refused, by showing nothing."""
        if self.who.admin or user in {None, self.who.user}:
            self.looked(at, read, **what)
        else:
            self.denied(at, **what)

    def denied(self, at: str, **what: Any) -> None:
        """Write down what was refused."""
        self._add(at, **what, denied=True)

    def _add(self, at: str, **what: Any) -> None:
        if self.audit is not None:
            self.audit.add(user=self.who.user, admin=self.who.admin, through=self.through, at=at, **what)


def principal(settings: Settings, environ: Mapping[str, str] | None = None, *, token: str | None = None) -> Principal:
    """Return who is asking. AccessDenied if tokens are configured and none of them is given."""
    environ = os.environ if environ is None else environ
    if token is None:  # an empty one that was passed in is a wrong one, never the one of the environment
        token = environ.get(TOKEN) or None
    if token is not None or settings.access.tokens:
        user = _user_with(token, settings.access.tokens)
    elif USER in environ:
        user = checked_user(environ[USER], USER)
    else:
        return Principal(_login(), admin=True)
    return Principal(user, admin=user in settings.access.admins)


def caller(settings: Settings, user: str | None = None, token: str | None = None) -> Principal:
    """Return who calls the library: whom the token names, else the user it acts for, else an administrator."""
    if user is not None:
        checked_user(user, "user")
    if token is not None or settings.access.tokens:
        return principal(settings, token=text_or_none(token, "token"))
    return Principal("", admin=True) if user is None else Principal(user)


def confined(who: Principal, user: str | None) -> str | None:
    """Return the user to act for: the requested one if `who` may, else `who`. AccessDenied for another user."""
    if who.admin:
        return user
    if user not in {None, who.user}:
        raise AccessDenied(
            f"{who.user!a} cannot act for {user!a}.", hint="Leave the user out, or ask an administrator."
        )
    return who.user


def checked_user(user: str, where: str) -> str:
    """Return a name that can be a user's; an empty one must never mean everybody."""
    name = text_of(user, where, hint="Name a user, or leave it out.")
    if not name.strip():
        raise UsageError(f"{where} is {name!a}, which names no user.", hint="Name a user, or leave it out.")
    return name


def _user_with(token: str | None, tokens: Mapping[str, Secret]) -> str:
    if token is None:
        raise AccessDenied(
            "A token is needed, and none was given.",
            hint=f"Set {TOKEN} to one of the tokens in `access.tokens`.",
        )
    from hmac import compare_digest  # noqa: PLC0415 - only with tokens

    given = _digest(token)
    # every token is compared, and only digests, so that the time says nothing about any of them
    found = [user for user, known in tokens.items() if token and compare_digest(_digest(known.reveal()), given)]
    if not found:
        raise AccessDenied(
            "The token is not one of those in `access.tokens`.", hint="Ask an administrator for a token."
        )
    if len(found) > 1:
        raise SettingsError("`access.tokens` gives the same token to several users.", path="access.tokens")
    return found[0]


def _digest(token: str) -> bytes:
    import hashlib  # noqa: PLC0415 - only with tokens

    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _login() -> str:
    import getpass  # noqa: PLC0415 - only commands need it

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())
