"""Token counters: exact ones are exact, the estimate is close, and all of them are deterministic and never raise."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
import sysconfig
import unicodedata
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon.errors import UsageError
from orihon.records import Blob, Call, Message, Part
from orihon.tokens import PICTURE_TOKENS, _load_encoder, calibrate, counter, picture_tokens

NAMES = ("estimate", "chars4", "bytes4", "o200k", "cl100k")
ENV = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
STDLIB = Path(sysconfig.get_path("stdlib"))
JAPANESE = (Path(__file__).parent / "data" / "japanese.txt").read_text("utf-8").split("\n")[:-1]

FROZEN = (  # text, tokens in o200k, tokens in cl100k
    ("", 0, 0),
    ("a", 1, 1),
    ("Hello, world!", 4, 4),
    ("The quick brown fox jumps over the lazy dog.", 10, 10),
    ("It's what we'd have said, isn't it?", 9, 12),
    ("トークン数の見積もりが実際より小さいと、リクエストは拒否されます。", 27, 33),
    ("東京都渋谷区の天気は晴れ、最高気温は28度です。", 20, 27),
    ("def add(a: int, b: int) -> int:\n    return a + b\n", 19, 19),
    ("for (let i = 0; i < items.length; i++) {\n\tconsole.log(items[i]);\n}\n", 22, 22),
    ("HTTPServerError camelCase snake_case SCREAMING_CASE", 11, 10),
    ("1234567890 3.14159 0xDEADBEEF 2024-10-07T12:34:56Z", 29, 29),
    ("\U0001f600\U0001f680 done \u2705 \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", 16, 25),
    ("      \n\n\n\t\t  \r\n   x", 6, 6),
    ("<|endoftext|>", 7, 7),
    ("<|im_start|>system<|im_end|>", 13, 13),
    ("https://example.com/a/b?c=d&e=%20f#g", 14, 14),
    ("안녕하세요 세계", 3, 9),
    ("Привет, мир", 4, 6),
    ("مرحبا بالعالم", 4, 10),
    ("中文分词测试", 4, 6),
    ("naïve café Übergröße", 6, 7),
    ("\x00\x01\x1b[31mred\x1b[0m", 11, 9),
    ("=== a ===\n//b\n.\n/c", 8, 9),
)


def message(content, *, role="user", **more):
    return Message(seq=1, role=role, content=content, timestamp="2025-01-01T00:00:00Z", tokens=0, **more)


def cut(texts):
    """Cut texts at line ends into messages of very different sizes, the same ones every time."""
    dice = random.Random(1)
    for text in texts:
        start = 0
        while len(text) - start > 200:
            end = text.find("\n", start + int(10 ** dice.uniform(2.3, 4.3))) + 1 or len(text)
            yield text[start:end]
            start = end


def noise(alphabet):
    return "".join(random.Random(3).choices(alphabet, k=4000))


def japanese_messages():
    dice = random.Random(2)
    for _ in range(100):
        yield dice.choice(("", "\n", "\n- ")).join(dice.sample(JAPANESE, dice.randrange(3, 30)))


def code_messages():
    names = ("argparse", "ast", "bisect", "calendar", "csv", "dataclasses", "heapq", "inspect", "json/decoder", "queue")
    return cut((STDLIB / f"{name}.py").read_text("utf-8") for name in names)


def english_messages():
    docs = (inspect.getdoc(sys.modules[name]) or "" for name in ("subprocess", "random", "re", "ast", "typing"))
    return cut([*list(topics.values())[:40], *docs])


@pytest.mark.parametrize(("text", "o200k", "cl100k"), FROZEN)
def test_exact_counts_are_those_of_the_vocabularies(text, o200k, cl100k):
    """Both exact counters give the frozen count, also where a text looks like a special token."""
    assert (counter("o200k").text(text), counter("cl100k").text(text)) == (o200k, cl100k)


@pytest.mark.parametrize("name", ["o200k", "cl100k"])
def test_cutting_a_long_text_changes_no_exact_count(name):
    """A text of many pieces has as many tokens as the tokenizer finds in the whole of it."""
    text = "".join((STDLIB / f"{module}.py").read_text("utf-8") for module in ("argparse", "inspect"))
    assert counter(name).text(text) == len(_load_encoder(name)(text))


def test_a_text_without_lines_is_cut_all_the_same():
    """Where there is no line end to cut at, the count is off by less than a thousandth."""
    text = json.dumps(list(topics.values()))
    assert len(text) > 100_000
    assert counter("o200k").text(text) == pytest.approx(len(_load_encoder("o200k")(text)), rel=0.001)


@pytest.mark.parametrize("messages", [english_messages, japanese_messages, code_messages])
def test_the_estimate_is_close_to_o200k(messages):
    """The mean error of the estimate is at most 8 % on English, Japanese and code messages each, and it is not low."""
    estimate, exact = counter(), counter("o200k")
    errors = [estimate.text(text) / exact.text(text) - 1 for text in messages()]
    assert len(errors) > 50
    assert sum(map(abs, errors)) / len(errors) <= 0.08
    assert sum(errors) / len(errors) >= -0.04


@pytest.mark.parametrize(
    "text",
    [
        noise("0123456789abcdef"),
        noise("0123456789"),
        noise("abcdefghijklmnopqrstuvwxyz"),
        noise("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
        noise("ACGT"),
        noise("😀🚀🎉✅❌🔥👍💡📝🐛"),
        "=" * 4000,
        " " * 4000,
        "a" * 4000,
        "Изменения сохранены, но сервер нужно перезапустить. " * 20,
        "配置文件已经更新。请重新启动服务器以使更改生效。" * 20,
        "설정 파일이 변경되었으므로 서버를 다시 시작해야 합니다. " * 20,
        "አማርኛ የኢትዮጵያ ቋንቋ ነው። ዛሬ ጥሩ ቀን ነው። " * 20,
        "བོད་སྐད་ནི་བོད་ཀྱི་སྐད་ཡིག་ཡིན། " * 20,
        "ພາສາລາວແມ່ນພາສາທາງການຂອງປະເທດລາວ " * 20,
        "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ ⵜⴰⵎⴰⵣⵉⵖⵜ " * 20,
        "⠋ building\n⠙ building\n⠹ building\n" * 20 + "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" * 40,
        "\ue0b0 main \ue0a0 \uf113 ok " * 40,
        unicodedata.normalize("NFD", "Příliš žluťoučký kůň úpěl ďábelské ódy. ") * 20,
        "".join(f"Z{chr(0x300 + n % 112)}{chr(0x300 + n * 7 % 112)}" for n in range(400)),
        "␀".join("UTF-16 that was read as UTF-8 " * 20),
        "𠀀𠀁𠀂𠀃𠀄𝐇𝐞𝐥𝐥𝐨" * 40,
    ],
)
def test_the_estimate_is_never_absurdly_low(text):
    """Noise, runs and other scripts are not estimated at less than three quarters of what they cost."""
    assert counter().text(text) >= 0.75 * counter("o200k").text(text)


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_text_is_free(name):
    """No text, no tokens; no schemas, no tokens."""
    assert counter(name).text("") == counter(name).tools([]) == 0


@given(st.text(st.characters(), max_size=300))
def test_any_string_can_be_counted(text):
    """No string raises or counts below zero or above its bytes: not NUL, not a lone surrogate."""
    size = len(text.encode("utf-8", "surrogatepass"))
    for name in NAMES:
        assert 0 <= counter(name).text(text) <= size


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_estimate_hardly_depends_on_where_a_text_is_cut(left, right):
    """Two halves cost what the whole costs, but for what stands at the cut."""
    count = counter().text
    assert abs(count(left) + count(right) - count(left + right)) <= 16


def test_the_estimate_of_a_long_text_is_the_sum_of_its_parts():
    """A megabyte costs what its lines cost, within a few per cent."""
    text = (STDLIB / "argparse.py").read_text("utf-8") * 10
    lines = sum(counter().text(line) for line in text.splitlines(keepends=True))
    assert counter().text(text) == pytest.approx(lines, rel=0.08)


def test_counts_are_the_same_in_every_process():
    """The estimate depends on nothing but the text: not on the hash seed, not on the process."""
    script = "from orihon.tokens import counter; print(counter().text('Fold 折り本 fold! 123\\n' * 99))"
    here = counter().text("Fold 折り本 fold! 123\n" * 99)
    for seed in ("1", "2"):
        out = subprocess.run(
            [sys.executable, "-c", script], env=ENV | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        assert int(out.stdout) == here


def test_importing_and_choosing_loads_no_tokenizer():
    """The vocabulary is loaded at the first text, not before."""
    script = "import sys, orihon.tokens as t; t.counter('o200k'); assert 'splintr' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", script], env=ENV, check=True)


def test_chars4_is_the_rule_of_the_seeds():
    """A quarter of the characters sent, rounded up: 100 for a picture, a call as its JSON, nothing for a role."""
    seeds = counter("chars4")
    call = Call(id="c1", name="ls", arguments='{"path":"/"}')
    assert seeds.text("折り本と表紙とを折る。") == 11 // 4
    assert seeds.message(message("x" * 403)) == 101
    result = message('{"ok":true}' * 4, role="tool", tool_call_id="call_1", tool_name="ls")
    assert seeds.message(result) == (44 + len("call_1") + len("ls")) // 4
    assert (
        seeds.message(message("", role="assistant", tool_calls=[call]))
        == len('{"id":"c1","name":"ls","arguments":{"path":"/"}}') // 4
    )
    assert seeds.message(message([Part(type="text", text="x" * 40), Part(type="image", data="AAAA")])) == 110


def test_bytes4_is_a_quarter_of_the_bytes_and_four():
    """UTF-8 bytes of the content, and of the names, ids and arguments of calls, by four, and 4 a message."""
    call = Call(id="c1", name="read", arguments='{"p":"あ"}')
    assert counter("bytes4").text("あああ") == 3
    assert counter("bytes4").message(message("あああ")) == 3 + 4
    assert counter("bytes4").message(message("x", role="assistant", tool_calls=[call])) == (1 + 4 + 2 + 11 + 3) // 4 + 4


@pytest.mark.parametrize("name", ["estimate", "o200k", "cl100k"])
def test_a_message_costs_more_than_its_text(name):
    """Role, calls, results with their ids and names, and the heads of files are counted on top of the words."""
    count = counter(name)
    words, own_id = count.text("List the files."), count.text("c1")
    call = Call(id="c1", name="ls", arguments='{"path":"/tmp"}')
    inside = own_id + count.text("ls") + count.text('{"path":"/tmp"}')
    assert count.message(message("List the files.")) == words + 4
    assert count.message(message("List the files.", role="assistant", tool_calls=[call])) == words + 4 + inside + 8
    result = message("List the files.", role="tool", tool_call_id="c1", tool_name="ls")
    assert count.message(result) == words + 4 + 8 + own_id + count.text("ls")
    parts = [Part(type="text", text="List the files."), Part(type="file", name="a.txt", text="hello")]
    assert count.message(message(parts)) >= count.text("List the files.\n[file a.txt: m1]\nhello") + 4


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1000, 1000, 1334),  # Anthropic's rule
        (2048, 4096, 1600),
        (512, 512, 350),
        (1, 1, 255),  # OpenAI's rule
        (800, 600, 765),
        (3000, 100, 765),
        (None, 5, PICTURE_TOKENS),
        (-5, 5, PICTURE_TOKENS),
        (10**400, 10**400, PICTURE_TOKENS),
    ],
)
def test_pictures_cost_what_the_dearer_provider_publishes(width, height, tokens):
    """85 tokens and 170 a tile, or a token for 750 pixels; one of unknown size is as dear as the dearest."""
    assert picture_tokens(width, height) == tokens
    part = Part(type="image", media_type="image/png", data="A" * 99_999, width=width, height=height)
    assert counter().message(message([part])) == tokens + 4


def test_no_picture_is_dearer_than_one_of_unknown_size():
    """The default for a picture without a size is the most that the rule can give."""
    sizes = (1, 300, 511, 513, 768, 1024, 1500, 2048, 3000, 9000)
    assert max(picture_tokens(width, height) for width in sizes for height in sizes) == PICTURE_TOKENS


def test_a_file_without_words_is_a_line():
    """No format sends a document or a sound as such, so they cost what the line in their place costs."""
    file = Part(type="file", media_type="application/pdf", blob=Blob(sha256="0" * 64, size_bytes=10_000))
    assert counter().message(message([file])) == counter().text("[file application/pdf, 10,000 bytes: m1]") + 4


@pytest.mark.parametrize("name", NAMES)
def test_tool_schemas_count_as_their_json(name):
    """Schemas cost what the JSON that is sent costs."""
    schemas = [{"name": "読む", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]
    text = json.dumps(schemas, ensure_ascii=False, separators=(",", ":"))
    assert counter(name).tools(schemas) == counter(name).text(text) > 0


def test_an_unknown_counter_is_refused_with_the_names():
    """The error lists what there is."""
    with pytest.raises(UsageError) as caught:
        counter("gpt2")
    assert all(name in caught.value.hint for name in NAMES)


def test_without_the_tokenizer_the_error_says_what_to_install(monkeypatch):
    """Choosing an exact counter without splintr-rs fails at once, with the command that helps."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(UsageError) as caught:
        counter("o200k")
    assert caught.value.hint == "pip install 'orihon[tokens]'"


@pytest.mark.parametrize(
    ("pairs", "factor"),
    [
        ([], 1.0),
        ([(100, 150)] * 4, 1.0),
        ([(100, 120)] * 5, 1.2),
        ([(100, 120)] * 7 + [(100, 900)], 1.2),
        ([(100, 100)] * 7 + [(100, 900)], 1.0),
        ([(100, 80)] * 9 + [(100, 90)], 0.9),
        ([(100, 80)] * 9 + [(100, 130)], 1.0),
        ([(100, 900)] * 9, 2.0),
        ([(100, 1)] * 9, 0.5),
        ([(0, 50), (50, 0), (0, 0)] * 9, 1.0),
    ],
)
def test_calibration_is_careful(pairs, factor):
    """It needs a few pairs, ignores outliers, goes down only as far as every pair allows, and has limits."""
    assert calibrate(pairs) == pytest.approx(factor)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), max_size=30))
def test_calibration_never_lowers_a_count_below_what_was_reported(pairs):
    """Where the factor lowers counts, all past requests are still covered, or it stands at its limit."""
    factor = calibrate(pairs)
    assert factor in (0.5, calibrate(reversed(pairs)))
    assert factor >= 1 or factor == 0.5 or all(counted * factor >= reported - 1e-6 for counted, reported in pairs)
