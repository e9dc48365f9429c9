"""The settings of the user of a task.

A service answers `GET /config/PLATFORM/USER` with `{"status": "success", "data": {"llm": …}}`; a file has the same
under `PLATFORM: USER:`. A user may set the names in `ALLOWED`, which are validated like `config.yaml`. After any
failure the task runs with the general settings, and a warning is logged.

Nothing is kept between two calls, so that no key of one user can reach the task of another. A user who sets another
address for a model must bring a key: the general key is never sent there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from orihon.agent.sources.issue import join_line
from orihon.agent.sources.rest_client import read_bounded
from orihon.coerce import decode_json
from orihon.errors import OrihonError, SettingsError, SourceError
from orihon.settings import load as config
from orihon.settings.schema import Provider, Settings

log = logging.getLogger("orihon")

ALLOWED = ("llm", "max_llm_process_num", "system_prompt")
MAX_NAME_CHARS = 255
MAX_BYTES = 1_000_000
OK, NOT_FOUND = 200, 404
SERVICE = "The service of user settings"

Fetch = Callable[[str, Mapping[str, str], float], tuple[int, bytes]]

_PLATFORM = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)


def settings_for(platform: str, user: str, settings: Settings, *, fetch: Fetch | None = None) -> Settings:
    """Return the settings of one user: the general ones, overridden by the service or the file."""
    api = settings.user_config_api
    if not api.enabled or not user:
        return settings
    try:
        _check_names(platform, user)
        if api.file:
            return _load_from_file(platform, user, settings)
        return _load_from_service(platform, user, settings, fetch or fetch_bounded)
    except OrihonError as error:
        log.warning("The settings of %s are not used: %s %s", join_line(user), error, error.hint)
    except Exception as error:  # noqa: BLE001 - whatever a service does, the task runs
        # the text of a foreign error may quote a key
        log.warning("The settings of %s are not used (%s).", join_line(user), type(error).__name__)
    return settings


def fetch_bounded(
    url: str, headers: Mapping[str, str], timeout_seconds: float, *, name: str = SERVICE
) -> tuple[int, bytes]:
    """Return status and body of one request. Redirects are not followed: they would get the key."""
    import httpx2  # noqa: PLC0415 - loaded when it is needed

    try:
        with httpx2.stream("GET", url, headers=dict(headers), timeout=timeout_seconds) as response:
            return response.status_code, read_bounded(response, MAX_BYTES, timeout_seconds, name)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SourceError(f"{name} does not answer ({type(error).__name__}).") from None


def _check_names(platform: str, user: str) -> None:
    if not _PLATFORM.fullmatch(platform):
        raise SettingsError(f"{platform!a:.80} is not a platform.", hint="Use a word such as github.")
    if len(user) > MAX_NAME_CHARS or not user.isprintable() or user.strip(".") == "":
        raise SettingsError(f"{user!a:.80} is not a user.", hint="Use a name.")


def _load_from_service(platform: str, user: str, settings: Settings, fetch: Fetch) -> Settings:
    api = settings.user_config_api
    url = f"{api.url.rstrip('/')}/config/{quote(platform, safe='')}/{quote(user, safe='')}"
    key = {"Authorization": f"Bearer {api.api_key.reveal().strip()}"} if api.api_key is not None else {}
    status, body = fetch(url, {"Accept": "application/json", **key}, api.timeout_seconds)
    if status == NOT_FOUND:
        return settings
    if status != OK:
        raise SourceError(f"{SERVICE} answered with {status}.", status=status)
    answer = decode_json(body, type=dict[str, Any])
    data = answer.get("data") or {}
    if answer.get("status", "success") != "success" or not isinstance(data, dict):
        raise SourceError(f"{SERVICE} returned no settings.")
    allowed = {name: value for name, value in data.items() if name in ALLOWED}
    return _override(settings, allowed, f"settings of {join_line(user)}")


def _load_from_file(platform: str, user: str, settings: Settings) -> Settings:
    path = settings.user_config_api.file
    content = _find_entry(_find_entry(config.read(path), platform), user)
    if content is None:
        return settings
    refused = [entry.key for entry in _iter_entries(content) if entry.key not in ALLOWED]
    if refused:
        raise SettingsError(f"{path}: a user cannot set {refused[0]!a:.60}.", hint=f"Use {', '.join(ALLOWED)}.")
    return _override(settings, content, path, variables=True)  # the operator wrote the file


def _override(settings: Settings, content: object, where: str, *, variables: bool = False) -> Settings:
    new, paths = config.override(settings, content, where=where, variables=variables)
    for name in new.llm.__struct_fields__:
        path = f"llm.{name}"
        is_provider = isinstance(getattr(new.llm, name), Provider)
        if is_provider and f"{path}.base_url" in paths and f"{path}.api_key" not in paths:
            raise SettingsError(
                f"{where}: `{path}.base_url` needs an `api_key` of its own.",
                hint="The general key is not sent to another address.",
            )
    return new


def _iter_entries(content: object) -> Iterator[Any]:
    return iter(content if isinstance(content, tuple) else ())


def _find_entry(content: object, name: str) -> object:
    """Return the value under a name; code hosts ignore case."""
    return next((entry.value for entry in _iter_entries(content) if entry.key.casefold() == name.casefold()), None)
