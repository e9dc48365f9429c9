"""Whose settings a task runs with.

The service answers `GET /config/PLATFORM/USER` with `{"status": "success", "data": {"llm": …}}`; a file holds the same
under `PLATFORM: USER:`. A user may set what is in `ALLOWED`, and it is checked like `config.yaml`. Whatever goes wrong
gives the settings as they were, with a warning, and the task runs.

Nothing is kept between two calls and settings cannot be changed, so no key of one user can reach the task of another.
A user who names another address for a model has to bring a key: the operator's key is never sent there.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from orihon.agent.sources.issue_prompt import word
from orihon.coerce import decode_json
from orihon.errors import OrihonError, SettingsError, SourceError
from orihon.settings import load as config
from orihon.settings.schema import Provider, Settings, UserConfigApi
from orihon.settings.section import Section

log = logging.getLogger("orihon")

ALLOWED = ("llm", "max_llm_process_num", "system_prompt")
MAX_NAME_CHARS = 255
MAX_BYTES = 1_000_000
OK, UNKNOWN_USER = 200, 404
SERVICE = "The service of user settings"

Fetch = Callable[[str, Mapping[str, str], float], tuple[int, bytes]]

_PLATFORM = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)


def settings_for(platform: str, user: str, settings: Settings, *, fetch: Fetch | None = None) -> Settings:
    """The settings of one user: those of the service or the file over the general ones."""
    api = settings.user_config_api
    if not api.enabled or not user:
        return settings
    try:
        _check(platform, user)
        if api.file:
            return _of_file(platform, user, settings)
        return _of_service(platform, user, settings, fetch or fetch_bounded)
    except OrihonError as error:
        log.warning("The settings of %s are not used: %s %s", word(user), error, error.hint)
    except Exception as error:  # noqa: BLE001 - whatever a service does, the task runs
        # the text of a foreign error may quote what it read, and that may be a key
        log.warning("The settings of %s are not used (%s).", word(user), type(error).__name__)
    return settings


def fetch_bounded(
    url: str, headers: Mapping[str, str], timeout_seconds: float, *, who: str = SERVICE
) -> tuple[int, bytes]:
    """Status and body of one request; redirects are not followed, because the key would go along."""
    import httpx2  # noqa: PLC0415 - loaded once it is needed

    end, body = time.monotonic() + timeout_seconds, bytearray()
    try:
        with httpx2.stream("GET", url, headers=dict(headers), timeout=timeout_seconds) as answer:
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES or time.monotonic() > end:
                    raise SourceError(f"{who} sends too much, or too slowly.")
            return answer.status_code, bytes(body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SourceError(f"{who} does not answer ({type(error).__name__}).") from None


def _check(platform: str, user: str) -> None:
    if not _PLATFORM.fullmatch(platform):
        raise SettingsError(f"A platform cannot be {platform!a:.80}.", hint="Allowed is a word such as github.")
    if len(user) > MAX_NAME_CHARS or not user.isprintable() or user.strip(".") == "":
        raise SettingsError(f"A user cannot be {user!a:.80}.", hint="Allowed is a name.")


def _of_service(platform: str, user: str, settings: Settings, fetch: Fetch) -> Settings:
    api = settings.user_config_api
    url = f"{api.url.rstrip('/')}/config/{quote(platform, safe='')}/{quote(user, safe='')}"
    headers = {"Accept": "application/json", **_key(api)}
    status, body = fetch(url, headers, api.timeout_seconds)
    if status == UNKNOWN_USER:
        return settings
    if status != OK:
        raise SourceError(f"{SERVICE} answered with {status}.", status=status)
    answer = decode_json(body, type=dict[str, Any])
    data = answer.get("data") or {}
    if answer.get("status", "success") != "success" or not isinstance(data, dict):
        raise SourceError(f"{SERVICE} has no settings to give.")
    given = {name: value for name, value in data.items() if name in ALLOWED}
    return _overridden(settings, given, f"settings of {word(user)}")


def _of_file(platform: str, user: str, settings: Settings) -> Settings:
    path = settings.user_config_api.file
    content = _at(_at(config.read(path), platform), user)
    if content is None:
        return settings
    wrong = [entry.key for entry in _each(content) if entry.key not in ALLOWED]
    if wrong:
        raise SettingsError(f"{path}: a user cannot set {wrong[0]!a:.60}.", hint=f"Allowed are {', '.join(ALLOWED)}.")
    return _overridden(settings, content, path, variables=True)  # the operator wrote it


def _overridden(settings: Settings, content: object, where: str, *, variables: bool = False) -> Settings:
    new, given = config.override(settings, content, where=where, variables=variables)
    for name in _providers(new.llm):
        path = f"llm.{name}"
        if f"{path}.base_url" in given and f"{path}.api_key" not in given:
            raise SettingsError(
                f"{where}: `{path}.base_url` needs an `api_key` of its own.",
                hint="The general key is not sent to another address.",
            )
    return new


def _providers(llm: Section) -> list[str]:
    return [name for name in llm.__struct_fields__ if isinstance(getattr(llm, name), Provider)]


def _key(api: UserConfigApi) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.api_key.reveal().strip()}"} if api.api_key is not None else {}


def _each(content: object) -> Iterator[Any]:
    return iter(content if isinstance(content, tuple) else ())


def _at(content: object, name: str) -> object:
    """What stands under a name; forges do not tell `Alice` from `alice`."""
    return next((entry.value for entry in _each(content) if entry.key.casefold() == name.casefold()), None)
