"""In a Japanese locale the help is Japanese, fits 80 columns, and errors and hints are Japanese."""

import ast
import inspect
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest

import orihon
from orihon import errors
from orihon.cli import COMMANDS, cli
from support.pages import ROOT

COMPOSED = {  # of several texts of the source or of click
    'One {"timestamp", "user", "admin", "through", "at", "uuid", "query", "read", "denied", …} per line.',
    "Missing argument {}.",
    "Missing option {}.",
    "A task key cannot be {}.",
    "Allowed is source/owner/repo/type/id, such as github/acme/shop/issue/27.",
}
TEXTS = ROOT / "src" / "orihon" / "cli" / "texts.ja.txt"
JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
SHAPES = re.compile(r"\{[^}]*[\"{].*\}")  # of JSON, which need no words
DRIVER = """
import sys
from orihon.cli import COMMANDS, main
for name in [None, *COMMANDS]:
    print(f"<<{name}>>")
    try:
        main([*filter(None, [name]), "--help"])
    except SystemExit as end:
        assert not end.code
"""


def pairs():
    return [pair.split("\n") for pair in TEXTS.read_text("utf-8").strip().split("\n\n")]


def run(*arguments, cwd, **environ):
    command = [sys.executable, *arguments]
    env = os.environ | {"LC_ALL": "ja_JP.UTF-8", "PYTHONUTF8": "1", "COLUMNS": "80"} | environ
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=60)


def columns(line):
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def test_every_text_is_a_pair_with_the_same_values():
    """An English line and a Japanese one, and no English line twice."""
    assert all(len(pair) == 2 for pair in pairs())
    assert [english for english, japanese in pairs() if english.count("{}") != japanese.count("{}")] == []
    listed = [english for english, _ in pairs()]
    assert len(listed) == len(set(listed)) > 350


def sources():
    """Every text of the source and of click, with `{}` for values."""
    places = [*(ROOT / "src" / "orihon").rglob("*.py"), *(ROOT / "examples" / "demo").glob("*.py")]
    for path in [*places, *Path(click.__file__).parent.glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for paragraph in re.split(r"\n\s*\n|\x08", node.value):
                    yield " ".join(re.sub(r"\{\w+(!r)?\}", "{}", paragraph).split())
                yield node.value.strip().partition("\n")[0]


def test_no_text_is_out_of_date():
    """Each English line stands in the source, so that it is found."""
    known = set(sources())
    stale = [english for english, _ in pairs() if english not in known | COMPOSED]
    assert stale == []


def test_every_error_has_a_message_and_a_hint():
    """The defaults of all classes."""
    listed = dict(pairs())
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.OrihonError)
    ]
    for error in classes:
        assert error.__doc__.strip().split("\n")[0] in listed, error
        assert error.default_hint in listed, error


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_is_translated(name):
    """The purpose, each paragraph, and each option."""
    listed = dict(pairs())
    command = cli.get_command(click.Context(cli), name)
    prose = inspect.cleandoc(command.help).partition("\b\n")[0].strip()
    texts = [COMMANDS[name], *prose.split("\n\n")]
    texts += [option.help for option in command.params if isinstance(option, click.Option) and option.help]
    missing = [text for text in (" ".join(text.split()) for text in texts) if text not in listed]
    assert missing == []
    assert [listed[text] for text in map(str.strip, texts) if text in listed and not is_japanese(listed[text])] == []


def is_japanese(text):
    return bool(JAPANESE.search(text) or SHAPES.fullmatch(text))


def test_the_help_fits_80_columns(tmp_path):
    """Prose and options are wrapped by columns; only examples and choices that are longer are not."""
    (tmp_path / "driver.py").write_text(DRIVER)
    done = run("driver.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    long = [line for line in done.stdout.splitlines() if columns(line) > 80]
    assert [line for line in long if JAPANESE.search(line)] == []
    assert "使い方: orihon ls" in done.stdout
    assert "オプション:" in done.stdout
    assert "Options:" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "xyz"], "はストアではありません: そのようなディレクトリはありません"),
        (["ls", "--nothing"], "というオプションはありません。\n  `orihon ls --help` で使い方を表示します。"),
        (["nothing"], "というコマンドはありません。"),
        (["show"], "引数 'UUID' がありません。"),
        (["inherit", "x"], "タスクキーに 'x' は使えません。"),
        (["run"], "作業の内容か、再開するタスクを指定してください。"),
        (["run", ""], "作業の内容が空です。\n  ファイル、"),
        (["import", str(TEXTS)], "は読み込める形式ではありません。\n  読み込める形式: portable, "),
    ],
)
def test_an_error_is_japanese(tmp_path, arguments, said):
    """The message with its values, and the hint; and English elsewhere."""
    done = run("-m", "orihon", *arguments, cwd=tmp_path)
    assert said in done.stderr
    assert not JAPANESE.search(run("-m", "orihon", *arguments, cwd=tmp_path, LC_ALL="C.UTF-8").stderr)


def test_orihon_alone_is_japanese(tmp_path):
    """What it is, and what to do next."""
    done = run("-m", "orihon", cwd=tmp_path)
    assert "logs/contexts にはまだストアがありません。" in done.stdout
    assert all(JAPANESE.search(line) for line in done.stdout.splitlines() if line.startswith("  orihon"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [],
            "openai:gpt-4o のキーがありません。環境変数 OPENAI_API_KEY か、config.yaml の `llm.openai.api_key` を設定",
        ),
        (
            ["--provider", "ollama", "--base-url", "http://127.0.0.1:1/v1"],
            "に接続できません（http://127.0.0.1:1/v1）: ",
        ),
    ],
)
def test_a_finding_with_a_hint_is_japanese(tmp_path, arguments, said):
    """The message, the hint behind it, and the verdict; the doctor then knows what the model lacks."""
    nothing = {"OPENAI_API_KEY": "", "ORIHON_STORE": ""}
    done = run("-m", "orihon", "init", *arguments, cwd=tmp_path, **nothing)
    assert said in done.stdout
    assert done.stdout.endswith("\n問題が 1 件あります。\n")
    assert all(JAPANESE.search(line) for line in done.stdout.splitlines())
    examined = run("-m", "orihon", "doctor", cwd=tmp_path, **nothing).stdout.splitlines()
    assert [line for line in examined if not JAPANESE.search(line)] == []


def test_the_next_page_is_named_in_japanese(tmp_path):
    """Where a list has more tasks than it shows."""
    with orihon.open(tmp_path / "store") as engine:
        for name in "ab":
            engine.start(f"local/issue/{name}", context_length=8_000).complete()
    done = run("-m", "orihon", "ls", "--limit", "1", "--store", "store", cwd=tmp_path)
    assert done.stderr == "続きは、同じオプションで `orihon ls --page 2`。\n"
