"""Turn what the user typed into tasks: a text, a Markdown file, a directory of them, or the URL of an issue."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from orihon.agent.sources.local import Local
from orihon.errors import UsageError
from orihon.ingest import sanitiser_for
from orihon.settings.schema import Forge, Settings
from orihon.task_key import TaskKey

PUBLIC_HOSTS = {"github": "github.com", "gitlab": "gitlab.com"}
KINDS = {"issues": "issue", "pull": "pull_request", "merge_requests": "merge_request"}
MAX_PATH_CHARS = 4096


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Something to work on: its key, and the text or the file that describes it."""

    key: TaskKey
    request: str = ""
    file: str = ""


def parse_targets(text: str, settings: Settings) -> list[Target]:
    """Return the targets of a text, a Markdown file, a directory of them, or a URL."""
    if text.strip().lower().startswith(("http://", "https://")) and len(text.split()) == 1:
        return [Target(key=parse_url(text.strip(), settings))]
    local = Local(text, sanitiser=sanitiser_for(settings))
    if local.path is None:
        return [Target(key=local.keys()[0], request=text)]
    if not local.path.is_dir():
        return [Target(key=local.keys()[0], file=str(local.path.resolve()))]
    return [Target(key=item.key, file=str(Path(item.url).resolve())) for item in local.find()]


def parse_target(text: str, settings: Settings) -> Target:
    """Return the one target of a text. Raise UsageError for a directory."""
    if text and len(text) < MAX_PATH_CHARS and "\n" not in text and Path(text).is_dir():
        raise UsageError(f"{text!a} is a directory.", hint="Name one of its files; `orihon enqueue` takes all of them.")
    return parse_targets(text, settings)[0]


def parse_url(url: str, settings: Settings) -> TaskKey:
    """Return the key of the item at a URL, such as https://github.com/acme/shop/issues/27."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url[:200]!a} is not a URL ({error}).", hint="Copy it from the browser.") from error
    source = next((name for name in PUBLIC_HOSTS if parts.hostname in _hosts(name, getattr(settings, name))), "")
    if not source:
        raise UsageError(
            f"No code host of the settings is at {str(parts.hostname)!a}.",
            hint="Set `github.base_url` or `gitlab.base_url`; the defaults are github.com and gitlab.com.",
        )
    names = [name for name in parts.path.split("/") if name and name != "-"]
    at = next((index for index in range(2, len(names) - 1) if names[index] in KINDS), None)
    if at is None:
        raise UsageError(
            f"{url[:200]!a} is not the URL of an issue or a pull request.",
            hint="Such as https://github.com/acme/shop/issues/27.",
        )
    owner, repo = "/".join(names[: at - 1]), names[at - 1]
    return TaskKey(task_source=source, owner=owner, repo=repo, task_type=KINDS[names[at]], task_id=names[at + 1])


def _hosts(name: str, host: Forge) -> set[str | None]:
    if not host.base_url:
        return {PUBLIC_HOSTS[name]}
    hostname = urlsplit(host.base_url).hostname or ""
    return {hostname, hostname.removeprefix("api.")}
