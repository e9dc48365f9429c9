"""A transcript that attacks whoever reads it does nothing."""

import pytest

import orihon
from orihon.settings.schema import Settings
from support.hostile_task import UUID, write
from support.viewing import viewing

pytestmark = pytest.mark.slow

PAGES = [
    "",
    "/call/4",
    "/call/6",
    "/diff/3/4",
    "/timeline",
    "/tree",
    "/plan",
    "/search?q=red",
    *(f"/m/{seq}" for seq in range(1, 8)),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("store") / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        write(engine)
    with viewing(url) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/store", "/search?q=red", *(f"/t/{UUID}{page}" for page in PAGES)])
def test_nothing_happens(path, client, visit):
    """No script runs, no dialog opens, nothing is fetched, nothing is out of place, no element is the transcript's."""
    opened = visit(client, viewport={"width": 800, "height": 700})
    page = opened.open(path)
    page.wait_for_timeout(200)
    assert "owned" not in page.title() or "<script>" in page.title()
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert (
        page.evaluate("document.querySelectorAll('[onerror],[onload],[onmouseover],iframe,object,embed').length") == 0
    )
    assert page.evaluate("[...document.links].filter(a => !/^https?:$/.test(a.protocol)).length") == 0
    assert page.evaluate("[...document.images].filter(i => new URL(i.src).origin !== location.origin).length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    text = page.evaluate("document.documentElement.outerHTML")
    assert not set(text) & set("\x00\x07\x08\x1b\x9b\u202e\u2066\u2067\u2069")
    assert len(text) < 3_000_000


def test_markdown_links_lead_to_the_web_only(client, visit):
    """A link to a site is a link that says nothing about the reader; a script is text."""
    page = visit(client).open(f"/t/{UUID}")
    links = page.evaluate("[...document.querySelectorAll('.prose a')].map(a => [a.href, a.rel])")
    assert links
    assert all(href.startswith("http://evil.example") and rel == "noopener noreferrer nofollow" for href, rel in links)
    assert page.locator(".prose img").count() == 0


def test_colours_of_a_terminal_are_shown(client, visit):
    """What a terminal would colour is coloured, and its other escapes are gone."""
    page = visit(client).open(f"/t/{UUID}")
    assert page.locator(".ansi-red").first.inner_text() == "red"
    assert page.locator(".diff-added").first.is_visible()
