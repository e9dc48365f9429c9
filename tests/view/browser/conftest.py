"""A real browser: the Chromium of the system, which talks to nobody but the server."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium():
    """The browser. `.ci/run` installs it."""
    path = shutil.which("chromium")
    assert path, "Install Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A page of the viewer in a browser that counts everything that is wrong."""

    def __init__(self, browser, client, **options):
        self.base = f"http://127.0.0.1:{client.server.port}"
        self.context = browser.new_context(**({"locale": "en-GB"} | options))
        name, _, value = client.cookie.partition("=")
        self.context.add_cookies([{"name": name, "value": value, "url": self.base}])
        self.page = self.context.new_page()
        self.problems = []
        self.page.on(
            "console", lambda message: message.type in {"error", "warning"} and self.problems.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}") or dialog.dismiss())
        self.page.on("request", self._check)

    def _check(self, request):
        if not request.url.startswith((self.base, "data:")):
            self.problems.append(f"a request to {request.url}")

    def open(self, path):
        answer = self.page.goto(self.base + path, wait_until="load")
        assert answer.status == 200, path
        return self.page

    def wait(self, expression):
        """Wait until an expression holds. The policy of the pages forbids what the browser's driver has for it."""
        for _ in range(300):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(expression)

    def close(self):
        self.context.close()
        assert self.problems == []


@pytest.fixture
def visit(chromium):
    """A function that opens a browser for a client; when the test ends, nothing may have gone wrong in any."""
    visits = []

    def make(client, **options):
        visits.append(Visit(chromium, client, **options))
        return visits[-1]

    yield make
    for one in visits:
        one.close()
