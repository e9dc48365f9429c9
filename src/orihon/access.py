"""Identify the caller: the user that a token or the environment names, and whether that user is an administrator.

Without `access.tokens` the caller is trusted: `ORIHON_USER` names the user, and without it the caller is the owner of
the files, who is an administrator. With `access.tokens` only a token identifies the caller. The token comes from
`ORIHON_TOKEN` or from the `token` argument of `orihon.open`, never from the command line, where `ps` shows it.

This module does not protect the files: a user who can read them needs no token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from orihon.coerce import to_optional_text, to_text
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


ANONYMOUS = Principal("")


class AuditLog(Protocol):
    """The audit log of a store."""

    def add(self, **what: Any) -> None:
        """Append an entry."""


class Trail:
    """Writes audit entries for one caller: each entry names the user and the command."""

    def __init__(self, audit: AuditLog | None, principal: Principal, command: str) -> None:
        self.audit, self.principal, self.command = audit, principal, command

    def record(self, at: str, read: Sequence[str], **what: Any) -> None:
        """Record an access; `read` names the parts that were read."""
        self._add(at, **what, read=list(read))

    def record_query(self, at: str, read: Sequence[str], user: str | None, **what: Any) -> None:
        """Record a query; one for the tasks of another user, which returns nothing, is recorded as denied."""
        if self.principal.admin or user in {None, self.principal.user}:
            self.record(at, read, **what)
        else:
            self.record_denied(at, **what)

    def record_denied(self, at: str, **what: Any) -> None:
        """Record a refused access."""
        self._add(at, **what, denied=True)

    def _add(self, at: str, **what: Any) -> None:
        if self.audit is not None:
            self.audit.add(user=self.principal.user, admin=self.principal.admin, through=self.command, at=at, **what)


def principal(settings: Settings, environ: Mapping[str, str] | None = None, *, token: str | None = None) -> Principal:
    """Return the caller of a command; raise AccessDenied if tokens are configured and no valid one is passed."""
    environ = os.environ if environ is None else environ
    if token is None:  # an empty `token` argument is invalid and does not fall back to the environment
        token = environ.get(TOKEN) or None
    if token is not None or settings.access.tokens:
        user = _find_user(token, settings.access.tokens)
    elif USER in environ:
        user = validate_user(environ[USER], USER)
    else:
        return Principal(_get_login(), admin=True)
    return Principal(user, admin=user in settings.access.admins)


def caller(settings: Settings, user: str | None = None, token: str | None = None) -> Principal:
    """Return the caller of the library: the user of the token, else `user`, else an administrator."""
    if user is not None:
        validate_user(user, "user")
    if token is not None or settings.access.tokens:
        return principal(settings, token=to_optional_text(token, "token"))
    return Principal("", admin=True) if user is None else Principal(user)


def confine_user(principal: Principal, user: str | None) -> str | None:
    """Return the user to act for: `user` for an administrator, else the caller; raise AccessDenied for another user."""
    if principal.admin:
        return user
    if user not in {None, principal.user}:
        raise AccessDenied(
            f"{principal.user!a} cannot act for {user!a}.", hint="Omit the user, or ask an administrator."
        )
    return principal.user


def validate_user(user: str, where: str) -> str:
    """Return a user name; raise UsageError for an empty one, which must never mean all users."""
    name = to_text(user, where, hint="Name a user, or omit it.")
    if not name.strip():
        raise UsageError(f"{where} is {name!a}, which is not a user name.", hint="Name a user, or omit it.")
    return name


def _find_user(token: str | None, tokens: Mapping[str, Secret]) -> str:
    if token is None:
        raise AccessDenied(
            "A token is required.",
            hint=f"Set {TOKEN} to one of the tokens in `access.tokens`.",
        )
    from hmac import compare_digest  # noqa: PLC0415 - only with tokens

    digest = _digest(token)
    # digests of all tokens are compared, so that timing reveals nothing about any of them
    users = [user for user, secret in tokens.items() if token and compare_digest(_digest(secret.reveal()), digest)]
    if not users:
        raise AccessDenied("The token is not in `access.tokens`.", hint="Ask an administrator for a token.")
    if len(users) > 1:
        raise SettingsError("`access.tokens` gives the same token to several users.", path="access.tokens")
    return users[0]


def _digest(token: str) -> bytes:
    import hashlib  # noqa: PLC0415 - only with tokens

    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _get_login() -> str:
    import getpass  # noqa: PLC0415 - only commands need it

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())
