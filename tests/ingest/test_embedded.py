"""Base64 that holds text is looked into wherever it stands on its own; pictures and archives stay as they are."""

import base64
import gzip
import io
import json
import random
import re
import string
import tarfile
import textwrap
import zipfile

import pytest

import orihon
from orihon.embedded import MIN_CHARS, decode_text, is_base64
from orihon.ingest import Sanitiser
from orihon.records import Call, Message, Native, Part, ToolCall
from orihon.settings.schema import Settings

PASSWORD = "k3y9f7q2w8e1"
ASSIGNED = f"DB_PASSWORD={PASSWORD}"
TEXT = f"HOME=/root and more words\n{ASSIGNED}\nX=1 and so on\n"


def b64(data, encoding="utf-8"):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode(encoding)).decode()


def wrapped(data, end="\n"):
    return end.join(textwrap.wrap(data, 76))


def everything_in(value):
    """Every text in a value, decoded as often as it can be."""
    text = value if isinstance(value, str) else repr(value)
    found = [text]
    for one in re.findall(r"[A-Za-z0-9+/_-]{12,}=*", re.sub(r"\\+[nr]|[\r\n]", "", text)):
        plain = one.rstrip("=").translate(str.maketrans("-_", "+/"))
        for cut in range(4):
            raw = base64.b64decode(plain[cut:] + "=" * (-len(plain[cut:]) % 4) if len(plain[cut:]) % 4 != 1 else b"")
            found += [raw.decode(encoding, "replace") for encoding in ("latin-1", "utf-16-le", "utf-16-be", "utf-32")]
            found.append(raw.replace(b"\0", b"").decode("latin-1"))
    return "\n".join(found)


ENCODED = {
    "UTF-16 whose first letter is not Latin": ("text/plain", b64(f"\u0100 {TEXT}", "utf-16-le")),
    "UTF-16 of Japanese": ("text/plain", b64(f"日本語の設定です。{ASSIGNED} です", "utf-16-le")),
    "big-endian UTF-16 of Japanese": (None, b64(f"日本語の設定です。{ASSIGNED} です", "utf-16-be")),
    "UTF-32": ("text/plain", b64(f"a {TEXT}", "utf-32")),
    "UTF-32 without a mark": (None, b64(f"a {TEXT}", "utf-32-be")),
    "latin-1 in lines": ("text/plain", wrapped(b64(f"für \xe9 {TEXT}", "latin-1"))),
    "a control character in lines": ("text/plain", wrapped(b64(f"x\x01y {TEXT}"), "\r\n")),
    "latin-1 of URLs": ("text/plain", base64.urlsafe_b64encode(f"ÿÿþ?? {TEXT}".encode("latin-1")).decode()),
    "NULs between": ("application/octet-stream", b64(f"HOME=/root\0{ASSIGNED}\0X=1\0")),
    "NULs between, no type": (None, b64(f"A=1\0{ASSIGNED}\0X=1\0")),
    "begins like RIFF": ("application/octet-stream", b64(f"RIFF notes: {TEXT}")),
    "begins like ID3": (None, b64(f"ID3 tags. {TEXT}")),
    "begins like GIF": (None, b64(f"GIF89a is old. {TEXT}")),
    "begins like a PDF": (None, b64(f"%PDF-files. {TEXT}")),
}


@pytest.mark.parametrize("name", ENCODED)
def test_text_in_the_data_of_a_part_is_masked(name):
    """Whatever its encoding, its alphabet and its lines."""
    media_type, data = ENCODED[name]
    with orihon.open("memory:", settings=Settings()) as engine:
        task = engine.start("local/issue/k")
        task.add(
            "user",
            [{"type": "file", "name": "x"} | {"data": data} | ({"media_type": media_type} if media_type else {})],
        )
        (stored,) = engine.store.read(task.uuid, Message)
        (part,) = stored.content
        data = b64(engine.store.blob(task.uuid, part.blob.sha256)) if part.blob else part.data or part.text
        task.close()
    assert PASSWORD not in everything_in(data)
    assert "PASSWORD]" in everything_in(data)


ON_ITS_OWN = {
    "MCP": [{"type": "resource", "resource": {"uri": "file:///x", "mimeType": "text/plain", "blob": b64(TEXT)}}],
    "a field": {"files": [{"name": "a", "content_b64": b64(TEXT)}]},
    "in lines": {"content_b64": wrapped(b64(TEXT * 3))},
    "of URLs": {"x": base64.urlsafe_b64encode(f"??>>{TEXT}".encode()).decode().rstrip("=")},
    "a list": [b64(TEXT)],
    "the whole": b64(TEXT),
    "the whole in lines": wrapped(b64(TEXT * 3)) + "\n",
    "twice": {"x": b64(b64(TEXT))},
    "JSON in it": {"x": b64(json.dumps({"content": b64(TEXT)}))},
    "UTF-16": {"x": b64(TEXT, "utf-16-le")},
    "NULs between": {"x": b64(f"A=1\0{ASSIGNED}\0X=1\0")},
}


@pytest.mark.parametrize("name", ON_ITS_OWN)
def test_a_value_of_its_own_is_looked_into(name):
    """In results, in arguments, in payloads of a provider, and in text that is JSON."""
    value, sanitiser = ON_ITS_OWN[name], Sanitiser()
    say = {"seq": 1, "role": "assistant", "timestamp": "", "tokens": 0}
    text = json.dumps(value)
    records = [
        ToolCall(seq=1, tool="t", args={"a": value}, result=value, status="success", duration_ms=0, timestamp=""),
        Message(content=text, **say),
        Message(content=json.dumps({"outer": text}), **say),
        Message(content=value if isinstance(value, str) else repr(value), **say),
        Message(content=[Part(type="text", text=text)], **say),
        Message(content="", tool_calls=[Call(id="1", name="t", arguments=json.dumps({"a": value}))], **say),
        Message(content="", native=Native(api="anthropic", items=[{"type": "x", "content": value}]), **say),
    ]
    for record in records:
        admitted = sanitiser.record(record)
        assert admitted != record
        assert PASSWORD not in everything_in(admitted)
        assert sanitiser.record(admitted) == admitted
    kept = json.loads(sanitiser.record(records[1]).content)
    assert type(kept) is type(value)
    if name == "in lines":
        inside = base64.b64decode(kept["content_b64"]).decode()
        assert inside == TEXT.replace(PASSWORD, "[PASSWORD]") * 3


def a_tar():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("env")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT.encode()))
    return made.getvalue()


def a_zip():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("env", TEXT)
    return made.getvalue()


NOISE = random.Random(4).randbytes(3000)
SECRET_INSIDE = f" {ASSIGNED} ".encode()
BINARIES = {
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + NOISE + SECRET_INSIDE,
    "JPEG": b"\xff\xd8\xff\xe0\0\x10JFIF\0" + NOISE + SECRET_INSIDE,
    "GIF": b"GIF89a\x01\0\x01\0\x80\0\0" + NOISE + SECRET_INSIDE,
    "WebP": b"RIFF\x24\0\0\0WEBPVP8 " + NOISE + SECRET_INSIDE,
    "WAV": b"RIFF\x24\x08\0\0WAVEfmt " + NOISE + SECRET_INSIDE,
    "MP3": b"ID3\x03\0\0\0\0\0\x0f" + NOISE + SECRET_INSIDE,
    "Ogg": b"OggS\0\2" + NOISE + SECRET_INSIDE,
    "FLAC": b"fLaC\0\0\0\x22" + NOISE + SECRET_INSIDE,
    "MP4": b"\0\0\0\x18ftypmp42" + NOISE + SECRET_INSIDE,
    "PDF": b"%PDF-1.7\n" + TEXT.encode() * 20,
    "zip": a_zip(),
    "tar": a_tar(),
    "gzip": gzip.compress(NOISE + SECRET_INSIDE, 0),
    "ELF": b"\x7fELF\2\1\1\0" + NOISE + SECRET_INSIDE,
    "SQLite": b"SQLite format 3\0\x10\0" + NOISE + SECRET_INSIDE,
}


@pytest.mark.parametrize("name", BINARIES)
def test_pictures_sound_pdfs_and_archives_stay_as_they_are(name):
    """To the byte, in a part, in a value, in quotes, in lines and in a blob."""
    data, sanitiser = BINARIES[name], Sanitiser()
    for written in (b64(data), wrapped(b64(data)), base64.urlsafe_b64encode(data).decode()):
        assert sanitiser.value({"blob": written, "list": [written]}) == {"blob": written, "list": [written]}
        assert sanitiser.text(written) == written
        given = Part(type="file", data=written)
        assert sanitiser.record(given) == given
    assert sanitiser.data(data) is data
    assert decode_text(data) is None


def test_ordinary_words_are_not_taken_for_base64():
    """Names, sums, paths and words come back as the same object."""
    sanitiser, chance = Sanitiser(), random.Random(1)
    words = ["".join(chance.choices(string.ascii_letters + "_/-", k=chance.randrange(4, 60))) for _ in range(3000)]
    words += [
        "0f" * 20,
        "src/orihon/context/events",
        "internationalisation",
        "a" * 500,
        "foo\nbar_baz\nqux_quux_corge\n",
    ]
    for word in words:
        assert sanitiser.text(word) is word
    quoted = json.dumps({word: word for word in words})
    assert sanitiser.text(quoted) is quoted


def test_what_is_shorter_or_no_base64_is_not_tried():
    """Only a text that can be base64 as a whole is decoded."""
    assert is_base64("A" * MIN_CHARS)
    assert is_base64("QUJD\r\n" * 4)
    for text in ("A" * (MIN_CHARS - 1), "two words of some length", "A" * 20 + ".", "=" * 20, "", "\n" * 20):
        assert not is_base64(text)


BASE64_PLACES = {
    "the output of a command": "$ base64 -w0 .env\n{}\n$ ",
    "a pipe": "echo {} | base64 -d",
    "a value of YAML": "content: {}",
    "a block of YAML": "content: |\n    {}\n",
    "a property": "UserData={}",
    "an attribute of HTML": '<a href="data:text/plain;base64,{}">notes</a>',
    "Markdown": "[notes](data:text/plain;base64,{})",
    "a sentence": "see data:application/json;base64,{} there",
    "Japanese": "内容は{}です",
    "a cell": "1,{},x",
}


@pytest.mark.parametrize("place", BASE64_PLACES.values(), ids=BASE64_PLACES)
@pytest.mark.parametrize("content", ["DB_PASSWORD={}\nX=1\n", "設定\nDB_PASSWORD={}\n", "postgres://u:{}@db/shop"])
def test_base64_inside_a_text_is_masked(place, content):
    password = "k3Jx9QzW2b7T"
    encoded = base64.b64encode(content.format(password).encode()).decode()
    masked = Sanitiser().text(place.format(encoded))
    before, _, after = place.partition("{}")
    assert masked.startswith(before)
    assert masked.endswith(after)
    inside = base64.b64decode(masked[len(before) : len(masked) - len(after)]).decode()
    assert password not in inside
    assert "[PASSWORD]" in inside or "[DATABASE_URL]" in inside


def test_base64_in_lines_inside_a_text_is_masked():
    lines = base64.encodebytes(b"A=1\n" * 40 + b"DB_PASSWORD=k3Jx9QzW2b7T\n" + b"B=2\n" * 40).decode()
    masked = Sanitiser().text(f"$ base64 .env\n{lines}$ ls\n")
    assert masked.startswith("$ base64 .env\n")
    assert masked.endswith("$ ls\n")
    inside = base64.b64decode(masked.removeprefix("$ base64 .env\n").removesuffix("$ ls\n"))
    assert inside == b"A=1\n" * 40 + b"DB_PASSWORD=[PASSWORD]\n" + b"B=2\n" * 40


@pytest.mark.parametrize(
    "text",
    [
        "/home/alice/projects/shop/backend/settings/production",
        "see https://example.com/api/callbacks/github/some-long-name-here",
        "x SGVsbG8gd29ybGQsIHRoaXMgaXMgYSBwbGFpbiB0ZXh0 y",
        "abcdefghijklmnopqrstuvwxyzabcdefghijkl " * 3,
        "integrity sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    ],
)
def test_base64_without_a_secret_is_the_same_object(text):
    assert Sanitiser().text(text) is text
