"""The detectors one by one: what each finds, what it keeps, and that masked JSON is still JSON.

Values are generated when the tests run, from a fixed seed, so that no secret scanner finds a token in this file.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from bench.shapes import fill, kept, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from orihon.redaction import KnownSecrets, mask, mask_value, masking

DRAWS = 200


def drawn(shape: str, count: int = DRAWS) -> list[str]:
    """Return values of a shape, the same ones every time."""
    rng = random.Random(shape)
    return [fill(shape, rng) for _ in range(count)]


def survivors(template: str, values: list[str]) -> list[str]:
    """Return the values that masking leaves in a text."""
    return [value for value in values if value in mask(template.replace("VALUE", value))]


@pytest.mark.parametrize(
    "template",
    [
        "DB_PASSWORD=VALUE",
        "export MYSQL_ROOT_PASSWORD=VALUE\n",
        "PGPASSWORD=VALUE psql -h db",
        "password: VALUE\n",
        "  password: VALUE  # of the test server",
        "tool --password=VALUE",
        "tool --password VALUE --verbose",
        "Server=db;Uid=app;Pwd=VALUE;SslMode=None",
        "machine example.com login ci password VALUE",
        "machine example.com\n  login ci\n  password VALUE\n",
        "client_secret=VALUE&grant_type=client_credentials",
        "CLIENT_SECRET=VALUE",
        "[client]\nuser = app\npassword = VALUE\n",
        "spring.datasource.password=VALUE\n",
        "host=db user=app password=VALUE dbname=app",
        "ENV DB_PASSWORD VALUE",
        "mysql -uroot -pVALUE app",
        "sshpass -p VALUE ssh root@host",
        "docker login -u ci -p VALUE registry.example.com",
        "ALTER ROLE app WITH PASSWORD 'VALUE';",
        "CREATE USER app IDENTIFIED BY 'VALUE';",
        "echo VALUE | docker login -u ci --password-stdin",
        'requests.get(url, auth=("user", "VALUE"))',
        "<key>Password</key>\n<string>VALUE</string>",
        "login of app failed: password=VALUE, tries=3",
    ],
)
def test_a_short_unquoted_value_under_a_clear_name_is_masked(template):
    """Twelve letters and digits behind such a name are not taken for the name of a variable."""
    assert len(survivors(template, drawn("{62:12}"))) <= DRAWS * 0.02


@pytest.mark.parametrize(
    "template", ["The password is VALUE, for now.", "パスワードは VALUE です。", "**Password:** `VALUE`"]
)
def test_a_random_password_in_a_sentence_is_masked(template):
    """A value that resembles no word is a password if the sentence says so."""
    assert len(survivors(template, drawn("{62:11}7"))) <= DRAWS * 0.02


COLOURS = ["\x1b[32mVALUE\x1b[0m", "\\u001b[32mVALUE\\u001b[0m", "\\x1b[1;32mVALUE", "\\033[32mVALUE", "[32mVALUE[0m"]


@pytest.mark.parametrize("template", COLOURS)
@pytest.mark.parametrize(
    "shape", ["ghp_{62:36}", "glpat-{url:20}", "sk-ant-api03-{url:90}", "AKIA{b32:16}", "fc-{hex:32}"]
)
def test_a_terminal_code_does_not_hide_a_token(template, shape):
    """A colour in front of a token, raw or escaped, is not a part of it."""
    assert survivors(template, drawn(shape, 50)) == []


def test_a_terminal_code_inside_does_not_hide_a_secret():
    """`grep --color` marks a part of a token or of a name."""
    for value in drawn("{62:36}", 20):
        assert value not in mask(f"a:\x1b[01;31m\x1b[Kghp_\x1b[m\x1b[K{value}")
        assert value not in mask(f"a:\x1b[01;31m\x1b[KAPI_TOKEN\x1b[m\x1b[K={value}")
    assert (
        mask("\x1b[1mpassword\x1b[0m: \x1b[31mhunter22\x1b[0m.") == "\x1b[1mpassword\x1b[0m: \x1b[31m[PASSWORD]\x1b[0m."
    )


@pytest.mark.parametrize(
    ("shape", "template"),
    [
        ("{url:90}", '{"refresh_token":"1//0VALUE"}'),
        ("{b64:180}", "fm2_VALUE"),
        ("{b64:180}", "FlyV1 fm2_VALUE,fm2_x"),
        ("{b64:120}", "glc_VALUE"),
        ("{b64:180}", "sntrys_VALUE"),
        ("{b64:40}", "AWS_SECRET_ACCESS_KEY=VALUE"),
        ("{b64:40}", "aws_secret_access_key = VALUE\n"),
        ("{b64:40}", '"SecretAccessKey": "VALUE"'),
        ("{b64:40}", "AKIA" + "Q7W2E5R4" * 2 + ",VALUE\n"),
    ],
)
def test_plus_and_slash_do_not_end_a_token(shape, template):
    """Base64 is followed through its signs, wherever the first one stands."""
    assert survivors(template, drawn(shape, 500)) == []


KINDS = """
glpat-{az:20} tgp_v1_{url:43} csk-{low:48} wandb_v1_{url:77} pa-{url:43} fc-{hex:32} ak-{62:22} as-{62:22}
bb_live_{url:27} re_{62:8}_{62:24} hcaik_{low:58} crsr_{hex:64} squ_{hex:40} sk_{hex:48} ddpat_{62:40} bkaa_{hex:60}
acme-glpat-{url:19}7 {62:76}AZDO{62:4} {b64:76}+ASt{b64:6}== sk-or-v1-{hex:64} dtn_{hex:64} acme_live_{62:32}
xaat-{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12} acme_secret_{62:40} LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt{b64:200}
"""


@pytest.mark.parametrize("shape", KINDS.split())
def test_a_current_token_is_masked_without_a_name(shape):
    """Known beginnings of tokens are masked, and words by which unknown providers mark theirs."""
    assert survivors("Use VALUE, please.", drawn(shape, 50)) == []


@pytest.mark.parametrize(
    ("shape", "template"),
    [
        ("00{url:40}", "SSWS VALUE"),
        ("00{url:40}", "Authorization: SSWS VALUE"),
        ("{low:52}", "AZURE_DEVOPS_EXT_PAT=VALUE"),
        ("{62:30}%2B{62:13}%3D", "https://a.blob.core.windows.net/c?sv=2023-11-03&sp=r&sig=VALUE"),
        ("{low:31}1", "Cookie: csrf=1; sessionid=VALUE; theme=dark"),
        ("{url:39}1", "Set-Cookie: session=VALUE; Path=/; HttpOnly"),
        ("s%3A{url:32}.{62:40}", "curl -b 'connect.sid=VALUE' https://example.com"),
        ("{62:40}1", "GET / HTTP/1.1\r\nX-Other: Bearer VALUE\r\n"),
        ("{62:12}1", "redis-cli -h cache -a VALUE ping"),
        ("0x{hex:64}", "the key of the wallet is VALUE"),
        ("{62:31}7", "My API key is VALUE, please rotate it."),
        ("{62:31}7", "APIキーは VALUE です。"),
        ("{62:31}7", "トークン：VALUE"),
    ],
)
def test_a_value_is_masked_by_its_context(shape, template):
    """HTTP schemes, cookies, signatures in URLs and providers' names announce a value."""
    assert survivors(template, drawn(shape, 50)) == []


@pytest.mark.parametrize(
    "address",
    [
        "山田太郎@example.com",
        "taro@例え.jp",
        "marie.dupré@example.fr",
        "a@münchen.example",
        "taro@xn--r8jz45g.jp",
        "李雷@例子.com",
    ],
)
@pytest.mark.parametrize("template", ["連絡先は {} まで", "<{}>", "宛先：{}です", '"\\u003c{}\\u003e"'])
def test_an_address_in_another_script_is_masked(address, template):
    """Names and domains are not only written in ASCII, and the text around an address is kept."""
    assert mask(template.format(address)) == template.format("[EMAIL]")


@pytest.mark.parametrize(
    "text",
    [
        "postgres://user:pw@host/db",
        "mongodb://u:p@a:27017,b:27017/app?x=1",
        "jdbc:mysql://[(host=a,port=1,user=u,password=secret),(host=b,port=2,user=v,password=secret)]/db",
        "jdbc:postgresql://db:5432/app?user=app&password=x1",
        "jdbc:mysql://u:secret@[a:1,b:2]/db",
    ],
)
def test_a_connection_string_is_masked_completely(text):
    """A password may have two letters, and the hosts behind a comma belong to the string."""
    assert mask(text) == "[DATABASE_URL]"
    assert mask(f'url = "{text}";') == 'url = "[DATABASE_URL]";'


def test_a_kubernetes_secret_is_masked_in_json():
    """The data of a Secret is masked in JSON, in JSON inside JSON, and in a structure."""
    value = base64.b64encode(b"app:1:2").decode()
    document = {"kind": "Secret", "metadata": {"name": "db"}, "data": {"connection": value, "empty": ""}}
    expected = {**document, "data": {"connection": "[SECRET]", "empty": ""}}
    assert json.loads(mask(json.dumps(document))) == expected
    assert json.loads(json.loads(mask(json.dumps(json.dumps(document, indent=1))))) == expected
    assert mask_value(document) == expected


def test_a_value_next_to_its_name_is_masked_in_a_structure():
    """The environment of a container and the headers of a request hold names and values in separate items."""
    value = [{"name": "DB_PASSWORD", "value": "hunter22"}, {"name": "HOST", "value": "db"}, {"key": "x", "value": 1}]
    assert mask_value(value) == [{"name": "DB_PASSWORD", "value": "[PASSWORD]"}, *value[1:]]


@pytest.mark.parametrize("length", [500, 599, 600, 601, 5000])
@pytest.mark.parametrize(
    "template", ["AWS_SESSION_TOKEN=VALUE", '{"session_token": "VALUE"}', "Bearer VALUE", "eyJVALUE.VALUE"]
)
def test_a_long_secret_is_masked_to_its_end(template, length):
    """No part of a long secret is left."""
    value = fill(f"{{url:{length - 1}}}7", random.Random(length))
    masked = mask(template.replace("VALUE", value))
    assert not any(value[at : at + 8] in masked for at in range(length - 8))


KEPT = [
    "--- PASS: TestParse (0.00s)",
    "    --- PASS: TestCLIOverrides/NoVersionCheck_override_(--no-version-check) (0.00s)",
    "I’ll skip core changes and do a docs-only pass: I’ll locate the triggers.",
    '"pwd": "{{ .PWD }}"',
    '"pwd": "osc99"',
    "flags.PWD = pwd",
    "flags.PWD = *envFlags.PWD",
    "firstPassValid = !repairAttempted;",
    '--pwd "D:/projects/shop"',
    "DB_PASSWORD=${DB_PASSWORD:-postgres}",
    "password: SecretStr\npassword = newPassword\nclient(password=dbPassword2)",
    '"sessionId":"0f8fad5b-d9cb-469f-a165-70867728950e"',
    "toolu_bdrk_01XyB4HVGdLNXT2X8cKkuWGy msg_bdrk_01V91eP4A4pz9PBJ2GhoAhVZ",
    '"sourceKey": "workspaces/ws_r25wk6dk/deployments/dep_b8lilwo4/source.tar.gz”,',
    "docker run -p 8080:80 -u 1000:1000 nginx && mkdir -p /data && mysql -u root -p",
    "#define CKM_TLS_MASTER_KEY_DERIVE  0x00000375UL",
    "https://user:${PASSWORD}@example.com https://user:***@example.com",
    "パスワードは8文字以上にしてください。",
]


@pytest.mark.parametrize("text", KEPT)
def test_harmless_text_from_transcripts_is_kept(text):
    """Test output, templates, variables, paths, ids and sentences are not changed."""
    assert mask(text) is text


def test_the_listed_shapes_are_masked_and_the_listed_texts_are_kept():
    """At least 97 % of fictitious secrets of more than 250 kinds are found, and none of more than 150 texts changes."""
    rng = random.Random(7)
    found = shapes(rng)
    assert len({shape.kind for shape in found}) >= 250
    assert sum(shape.secret in mask(shape.text) for shape in found) <= len(found) * 0.03
    texts = kept(rng)
    assert len(texts) >= 150
    assert [text for text in texts if mask(text) != text] == []


@pytest.mark.slow
def test_masking_a_masked_shape_changes_nothing():
    """A masked shape contains nothing more to mask, also next to another one."""
    rng = random.Random(11)
    texts = [shape.text for shape in shapes(rng)] + kept(rng)
    pairs = [f"{first}{rng.choice(' ,;=:')}{second}" for first, second in zip(texts, reversed(texts), strict=True)]
    for text in [*texts, *pairs]:
        once = mask(text)
        assert mask(once) is once


SECRETS = st.sampled_from([shape.text for shape in shapes(random.Random(5))])
STRINGS = SECRETS | st.text(max_size=30) | st.sampled_from(['"', "\\", "\n", 'password="a\\"b12"', "a@b.cd", "\x1b[1m"])
NAMES = st.sampled_from(["password", "token", "api_key", "text", "auth", "note", "pwd", "a.b"])
DOCUMENTS = st.recursive(
    STRINGS | st.integers(0, 10**18) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def shape_of(value: object) -> object:
    """Return the structure of a document, without its leaves."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(item) for item in value] if isinstance(value, list) else None


@settings(deadline=None, max_examples=300)
@given(DOCUMENTS, st.sampled_from([None, 2]), st.booleans())
def test_masked_json_is_still_json(document, indent, ascii_only):
    """A masked document has the structure of the original: values are replaced inside their quotes."""
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    assert shape_of(json.loads(mask(text))) == shape_of(document)
    assert shape_of(json.loads(json.loads(mask(json.dumps(text))))) == shape_of(document)


@pytest.mark.parametrize(
    "document",
    [{"password": "0\x9b", "token": None}, {"password": "k\x9b\\"}, {"token": '\x9b"x', "password": "\x9b1"}],
)
def test_a_terminal_code_in_json_ends_before_a_quote_or_a_backslash(document):
    """The single character for ESC [ is allowed in a JSON string, and the closing quote is no part of its code."""
    text = json.dumps(document, ensure_ascii=False)
    assert json.loads(mask(text)).keys() == document.keys()


def test_an_encoded_at_sign_in_a_url_does_not_swallow_the_text():
    """Without an @, `%40` ends no user name, and the text behind the URL is kept."""
    text = "https://host:80%40x hello world, and more text"
    assert mask(text) is text
    assert mask("https://user:pw%40x@host.example/ and more") == "[PASSWORD]/ and more"


@pytest.mark.parametrize("value", ["\\", "k9\\", '"', '\\"', "a1b2\\\\", 'Zq81"Lm\\'])
def test_a_backslash_at_the_end_of_a_value_does_not_escape_its_quote(value):
    text = json.dumps({"password": value, "n": [1]}, indent=2)
    for _ in range(3):
        text = json.dumps(text)
        masked = mask(text)
        while isinstance(masked, str):
            masked = json.loads(masked)
        assert masked["n"] == [1]


def test_the_mask_of_a_json_number_is_quoted():
    """A password may be a number; its mask is a string."""
    assert mask('{"password": 12345678, "n": 1}') == '{"password": "[PASSWORD]", "n": 1}'


def count_calls(text: str, *, known: KnownSecrets | None = None) -> Counter[str]:
    """Return how many functions masking calls for a text, by module, with those written in C under an empty name."""
    calls: Counter[str] = Counter()
    package = str(Path(masking.__file__).parent)

    def count(frame, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename if event == "call" else ""
        if event == "c_call" or name.startswith(package):
            calls[name] += 1

    sys.setprofile(count)
    try:
        mask(text, known=known)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("text", "max_calls", "max_modules"),
    [
        ("The total is wrong. Look at the basket, please.", 4, 2),
        ("認証処理の不具合を修正しました。空の入力でも確認します。", 4, 2),
        ("The total is wrong. Ask bob@example.com.", 12, 3),
    ],
)
def test_a_short_text_costs_few_calls(text, max_calls, max_modules):
    """Every message passes this way, so most of the work is left to single calls into C."""
    known = KnownSecrets(["correct-horse-battery-9"])
    mask(text, known=known)  # loads the detectors
    calls = count_calls(text, known=known)
    del calls[""]
    assert calls.total() <= max_calls
    assert len(calls) <= max_modules


HOSTILE = [
    *("a", "=", "@", "a@", "key", "password=", "key ", "A1", "\0", "://a:b@", '"password": "', "token: {{", " -pa1"),
    *(
        "ghp_",
        "fm2_aaaaaaaaaaaa1/",
        ".aaaaaaaaaaaaa1",
        "eyJaaaaaaaaaaaaa.",
        "Cookie: a=b1b1b1b1b1b1b1 ",
        "curl -u a:b ",
    ),
    *(
        "kind: Secret\ndata:\n a: b\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "\x1b[32mkey\n",
        "パスワードは1 ",
        "password=a1",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_the_work_is_linear_in_the_length(unit):
    """Twice the text takes twice the calls, however hostile the text is."""
    mask(unit)  # loads the detectors
    short, long = count_calls(unit * 1000).total(), count_calls(unit * 2000).total()
    assert long <= 2.2 * short + 200


def test_letters_alone_can_be_random():
    """A token without a digit differs from words in the order of its letters."""
    for value in drawn("{az:24}", 100):
        assert value not in mask(f"glpat-{value}")
    words = "glpat-this-is-not-a-token-at-all"
    assert mask(words) is words
