"""Models of both dialects against a server that follows a script of acts, without real waits."""

import ssl
import threading

import pytest

from orihon.agent.models import open_model
from orihon.retry import Backoff
from orihon.settings.schema import Llm, Provider, Settings
from orihon.settings.section import Secret
from support.failing_server import Chaos

KEY = "sk-live-0123456789abcdefghij"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No key or address of the machine's owner gets into a test."""
    for name in ("OPENAI", "ANTHROPIC"):
        for what in ("API_KEY", "BASE_URL", "AUTH_TOKEN", "ADMIN_KEY", "PROFILE", "ORG_ID"):
            monkeypatch.delenv(f"{name}_{what}", raising=False)


CERTIFICATES = ssl.create_default_context()


@pytest.fixture(autouse=True)
def read_certificates_once(monkeypatch):
    """Every client would read them anew, which takes longer than most of these tests; none of them needs any."""
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: CERTIFICATES)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Whatever goes wrong, nothing runs on."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


class Bench:
    """A server, a model that asks it, and the waits that were wished for."""

    def __init__(self, server, provider, **options):
        self.server, self.provider, self.waits = server, provider, []
        self.options = {"tries": 4, "max_seconds": 1800.0, "sleep": self.waits.append, "rng": lambda: 0.0} | options
        self.stall_seconds = 5.0
        self._models = []

    @property
    def settings(self):
        section = {"api_key": Secret(KEY), "context_length": 50_000}
        return Settings(
            llm=Llm(
                provider=self.provider,
                stall_seconds=self.stall_seconds,
                openai=Provider(model="gpt-4o", base_url=f"{self.server.root}/v1", **section),
                anthropic=Provider(model="claude-test", base_url=self.server.root, **section),
            )
        )

    def model(self, name="", *, cache=None, stall_seconds=5.0, **options):
        self.stall_seconds = stall_seconds
        opened = open_model(name, self.settings, cache=cache, backoff=Backoff(**self.options | options))
        self._models.append(opened)
        return opened

    def close(self):
        for model in self._models:
            model.close()


@pytest.fixture(params=["openai", "anthropic"])
def bench(request):
    """The same test in both dialects."""
    yield from _bench(request.param)


@pytest.fixture
def openai_bench():
    yield from _bench("openai")


@pytest.fixture
def anthropic_bench():
    yield from _bench("anthropic")


def _bench(provider):
    with Chaos() as server:
        bench = Bench(server, provider)
        try:
            yield bench
        finally:
            bench.close()
