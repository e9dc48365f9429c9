"""`make site` builds the documentation without a network, and refuses broken links and pages in no section."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from support.pages import ROOT

SECTIONS = [
    "Start",
    "Concepts",
    "Guides",
    "Integrations",
    "Operations",
    "Reference",
    "Benchmarks",
    "Specification",
    "日本語",
]


def build(folder, target):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_is_built_and_loads_nothing_from_other_hosts(tmp_path):
    """Every page is there; what a page loads is in the site."""
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//[^>]*>", text)
        assert not re.findall(r"<link(?![^>]+rel=\"?canonical)[^>]+href=\"?(?:https?:)?//[^>]*>", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("docs/index.md", "[gone](nothing.md)"),
        ("docs/index.md", "[gone](tasks.md#nothing)"),
        ("docs/alone.md", "# A page in no section"),
    ],
)
def test_a_broken_link_fails_it(tmp_path, page, text):
    """A page or an anchor that does not exist, and a page that nobody finds."""
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copy(ROOT / "mkdocs.yml", copy)
    with (copy / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    assert build(copy, tmp_path / "site").returncode != 0


def test_it_has_its_sections():
    """In this order."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    assert [next(iter(section)) for section in nav] == SECTIONS


def test_no_paragraph_stands_on_two_pages():
    """What is said once is not copied; the generated pages and their sources are one fact each."""
    seen, twice = {}, []
    for page in sorted((ROOT / "docs").glob("*.md")):
        for paragraph in re.split(r"\n\s*\n", page.read_text("utf-8")):
            words = " ".join(paragraph.split())
            if len(words) > 160 and not words.startswith(("|", "```", "<!--")) and page.name != "modules.md":
                if words in seen and seen[words] != page.name:
                    twice.append((seen[words], page.name, words[:80]))
                seen[words] = page.name
    assert not twice
