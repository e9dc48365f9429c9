"""A source of each kind over a fake forge, with a clock and a sleep that take no time."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from orihon import TaskKey
from orihon.agent.sources import open_source
from orihon.settings.schema import Settings
from orihon.settings.section import Secret, replace
from support.code_hosts import GitHubFake, GitLabFake, World

TOKEN = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
FAKES = {"github": GitHubFake, "gitlab": GitLabFake}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """The fake code hosts answer in threads of their own, which end when they like."""


@dataclass
class Desk:
    """A forge, the source that speaks to it, and what was slept."""

    name: str
    fake: World
    settings: Settings
    slept: list = field(default_factory=list)
    source: Any = None

    def key(self, number, *, pull=False):
        if self.name == "github":
            return TaskKey.github("acme", "shop", **{"pull_request" if pull else "issue": number})
        return TaskKey.gitlab("acme/tools", "shop", **{"merge_request" if pull else "issue": number})

    def again(self, **changes):
        """Another source over the same forge, as after a restart, or with other settings."""
        if self.source is not None:
            self.source.close()
        values = {f"{self.name}.{name}": value for name, value in changes.items()}
        self.source = open_source(
            self.name,
            replace(self.settings, values),
            sleep=self.slept.append,
            now=lambda: self.fake.time.timestamp() + sum(self.slept),
        )
        return self.source


def desk_of(name):
    fake = FAKES[name]()
    values = {"base_url": fake.url, "token": Secret(TOKEN), "bot_name": "The-Bot", "owner": "acme"}
    settings = replace(Settings(), {f"{name}.{key}": value for key, value in values.items()})
    desk = Desk(name, fake, settings)
    desk.again()
    return desk


@pytest.fixture(params=["github", "gitlab"])
def desk(request, caplog):
    """A forge; at the end nothing asked of it or answered by it is against its description, and no token leaked."""
    caplog.set_level(logging.DEBUG)
    desk = desk_of(request.param)
    yield desk
    desk.source.close()
    desk.fake.close()
    assert desk.fake.problems == []
    assert TOKEN not in caplog.text


@pytest.fixture
def token():
    return TOKEN


only_github = pytest.mark.parametrize("desk", ["github"], indirect=True)
only_gitlab = pytest.mark.parametrize("desk", ["gitlab"], indirect=True)
