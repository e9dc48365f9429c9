"""Every block of code on a page is run, or read by the program that it is for.

`python` is run page by page, in tests/e2e/test_examples.py. `console` shows commands with their output, and is run in
the tests of its page. `sh` shows commands that need a network, a model or a store: bash reads them, and each command
of `orihon` takes the arguments. `yaml` is loaded. `text` is for drawings and outputs.
"""

import ast
import json
import re
import subprocess
import tomllib

import click
import pytest
import yaml

from orihon.agent.sources import open_source
from orihon.agent.user_settings import settings_for
from orihon.cli import COMMANDS, cli
from orihon.settings.load import load, override
from orihon.settings.schema import Settings
from orihon.settings.section import Section
from support.pages import PAGES, ROOT, blocks, check_orihon, commands, page_name, without_blocks

LANGUAGES = {"python", "console", "sh", "yaml", "json", "cron", "ini", "markdown", "text"}
RUN_PAGES = {"docs/maintenance.md", "docs/operations.md"}  # each has a test that runs its consoles
GENERATED = {"docs/cli.md", "docs/modules.md", "docs/settings.md"}
OTHERS = {
    "cat",
    "cd",
    "docker",
    "echo",
    "eval",
    "export",
    "git",
    "grep",
    "jq",
    "less",
    "mail",
    "pipx",
    "psql",
    "source",
}
OTHERS |= {"for", "do", "done", "mkdir", "curl", "python", "sort", "sqlite3", "tail", "uniq", "uv", "uvx", "xargs"}
BY_ID = {"ids": page_name}


def pages_with(*languages):
    return [page for page in PAGES if blocks(page, *languages)]


@pytest.mark.parametrize("page", PAGES, **BY_ID)
def test_every_block_says_what_it_is(page):
    """No block is without a language, in one that no test reads, or marked by its indentation only."""
    assert {block.language for block in blocks(page)} <= LANGUAGES
    assert not re.search(r"\n\n {4}(?![-*\d ])\S", without_blocks(page))
    if page_name(page) not in GENERATED:
        for block in blocks(page, "text"):
            assert not re.search(r"^(\$ |orihon |import |from \w+ import )", block.text, re.MULTILINE), block.text


def test_a_console_is_run():
    """Outputs stand on pages whose commands are run."""
    assert {page_name(page) for page in pages_with("console")} == RUN_PAGES


@pytest.mark.parametrize("page", pages_with("sh"), **BY_ID)
def test_the_commands_of_a_page_are_accepted(page):
    """Bash can read them, and the commands, options, targets and extras exist."""
    for block in blocks(page, "sh"):
        read = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert read.returncode == 0, read.stderr
        for words in commands(block.text):
            check_command(words)


def check_command(words):
    while "=" in words[0]:
        words = words[1:]
    program, *arguments = words
    if program == "orihon":
        check_orihon(arguments)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word and not word.startswith("-")} <= set(targets), words
    elif program in {"pip", "pipx", "uvx"}:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = ",".join(re.findall(r"\[([\w,]+)\]", " ".join(arguments)))
        assert set(filter(None, named.split(","))) <= set(extras), words
        if program == "uvx" and arguments[0] == "orihon":
            check_orihon(arguments[1:])
    else:
        assert program in OTHERS or program.startswith("_"), words


def test_a_wrong_command_is_seen():
    """An option, a command, a value or an extra that does not exist."""
    for words in ("orihon ls --nothing", "orihon nothing", "orihon ls --status begun", "orihon show", "make nothing"):
        with pytest.raises((click.UsageError, AssertionError)):
            check_command(words.split())
    with pytest.raises(AssertionError):
        check_command(["pip", "install", "orihon[nothing]"])


@pytest.mark.parametrize("page", pages_with("yaml"), **BY_ID)
def test_the_settings_of_a_page_can_be_loaded(page, tmp_path, monkeypatch):
    """As config.yaml, as the settings of a user, or as a file of Docker Compose that runs commands."""
    for name in ("ALICE_TOKEN", "BOSS_TOKEN", "ALICES_KEY"):
        monkeypatch.setenv(name, f"{name}-0123456789")
    for number, block in enumerate(blocks(page, "yaml")):
        content = yaml.safe_load(block.text)
        path = tmp_path / f"{number}.yaml"
        path.write_text(block.text, encoding="utf-8")
        if "services" in content:
            for service in content["services"].values():
                words = str(service.get("command", "")).split()
                assert words[:1] != ["orihon"] or check_orihon(words[1:]) is None
        elif page.name == "sources.md":
            settings, _ = override(Settings(), {"user_config_api": {"enabled": True, "file": str(path)}}, where="test")
            assert settings_for("github", "alice", settings) != settings
        else:
            assert load(path, environ=dict.fromkeys(("ALICE_TOKEN", "BOSS_TOKEN"), "0123456789abcdef0")) != Settings()


@pytest.mark.parametrize("page", pages_with("json"), **BY_ID)
def test_the_json_of_a_page_is_json(page):
    """Line by line, or as one value."""
    for block in blocks(page, "json"):
        try:
            json.loads(block.text)
        except ValueError:
            assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())


@pytest.mark.parametrize("page", pages_with("cron", "ini"), **BY_ID)
def test_the_services_of_a_page_run_commands_that_exist(page):
    """The command of a line of cron or a unit of systemd."""
    checked = 0
    for block in blocks(page, "cron", "ini"):
        for line in block.text.splitlines():
            found = re.match(r"(?:ExecStart=|(?:\S+ +){5})(.*)", line)
            for words in commands(found[1]) if found and not line.startswith("#") else ():
                check_command([words[0].rpartition("/")[2], *words[1:]])
                checked += 1
    assert checked >= 2


def test_the_issue_of_a_page_is_an_issue(tmp_path):
    """The Markdown file in docs/sources.md has a title, labels and an author."""
    (block,) = blocks(ROOT / "docs" / "sources.md", "markdown")
    (tmp_path / "login.md").write_text(block.text, encoding="utf-8")
    source = open_source("local", Settings(), what=tmp_path / "login.md")
    item = source.get(source.keys()[0])
    assert (item.title, item.labels[0], item.author) == ("The login page is blank", "bug", "alice")


# what texts say about commands and settings


def texts_of_source():
    for path in sorted((ROOT / "src" / "orihon").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
                yield path, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def texts():
    yield from texts_of_source()
    yield from ((page, without_blocks(page)) for page in PAGES if page.name != "CHANGELOG.md")


def test_every_command_in_a_text_exists():
    """A hint or a page that says `orihon X --option` names a command and an option that exist."""
    named = [(path, found) for path, text in texts() for found in re.findall(r"`orihon ([^`\n]+)`", text)]
    assert len(named) > 100
    wrong = []
    for path, text in named:
        name, *rest = re.split(r"[\s|]+", text)
        options = {word.partition("=")[0] for word in rest if word.startswith("--")}
        if name in {"X", "COMMAND"} or name.startswith("--"):
            continue
        command = cli.get_command(click.Context(cli), name) if name in COMMANDS else None
        known = {option for parameter in command.params for option in parameter.opts} if command else set()
        known |= {option for parameter in command.params for option in parameter.secondary_opts} if command else set()
        if command is None or not options <= known | {"--help"}:
            wrong.append((path.name, text))
    assert not wrong


def settings_paths(section=None, path=""):
    for name in (section or Settings()).__struct_fields__:
        value = getattr(section or Settings(), name)
        yield f"{path}{name}"
        if isinstance(value, Section):
            yield from settings_paths(value, f"{path}{name}.")


def test_every_setting_in_a_text_exists():
    """A text that says `section.setting` names one that exists."""
    known = set(settings_paths())
    sections = {name for name in known if "." not in name and isinstance(getattr(Settings(), name), Section)}
    found = [
        (path.name, name)
        for path, text in texts()
        for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:: [^`\n]*)?`", text)
        if name.partition(".")[0] in sections - {"window"}  # `window.openai` is a method
    ]
    assert len(found) > 50
    package = ROOT / "src" / "orihon"
    modules = {".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")}
    files = (".py", ".md", ".yaml")
    assert not {(page, name) for page, name in found if name not in known | modules and not name.endswith(files)}
