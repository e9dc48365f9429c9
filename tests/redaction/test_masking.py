"""What masking hides and what it keeps.

Samples are assembled when the tests run, so that no secret scanner finds a token in this file.
"""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orihon.redaction import MASKS, KnownSecrets, has_mask, looks_secret, mask, mask_value, masks_in

MIXED = "a1B2c3D4e5F6"
HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"


def fake(start: str, length: int, letters: str = MIXED) -> str:
    """Return a token with the beginning of a real one."""
    return start + (letters * length)[:length]


TOKENS = [
    (fake("ghp_", 36), "[GITHUB_TOKEN]"),
    (fake("gho_", 36), "[GITHUB_TOKEN]"),
    (fake("github_" + "pat_", 60), "[GITHUB_TOKEN]"),
    (fake("sk-", 48), "[OPENAI_KEY]"),
    (fake("sk-" + "proj-", 60), "[OPENAI_KEY]"),
    (fake("sk-" + "ant-api03-", 90), "[ANTHROPIC_KEY]"),
    (fake("glpat-", 20), "[GITLAB_TOKEN]"),
    (fake("AKIA", 16, "Q7W2E5R4"), "[AWS_KEY]"),
    (fake("AIza", 35), "[GOOGLE_KEY]"),
    (fake("xoxb-" + "1234567890-", 24), "[SLACK_TOKEN]"),
    (fake("sk_" + "live_", 24), "[STRIPE_KEY]"),
    (fake("hf_", 34, "aBcDeXyZqW"), "[TOKEN]"),
    (fake("npm_", 36), "[TOKEN]"),
    (fake("SG." + MIXED + "abcdefghij.", 43), "[TOKEN]"),
    (fake("dop_v1_", 64, "0a1b2c3d"), "[TOKEN]"),
    (fake("AGE-SECRET-" + "KEY-1", 58, "Q7W2E5R4"), "[PRIVATE_KEY]"),
    (fake("eyJ", 30) + "." + fake("eyJ", 40) + "." + fake("", 43), "[JWT]"),
    (HEX + "-us12", "[API_KEY]"),
    ("https://hooks.slack" + ".com/services/T0AB12CD3/B0AB12CD3/" + fake("", 24), "[WEBHOOK]"),
    ("someone@example.com", "[EMAIL]"),
    ("no-reply@mail.example.co.jp", "[EMAIL]"),
]

ASSIGNED = [
    f'acmeToken = "{HEX}"',
    f"acmeToken={HEX}",
    f"export ACME_TOKEN={HEX}",
    f'  "acmeToken" => "{HEX}"',
    f'$acmeToken .= "{HEX}"',
    f'acme_TOKEN :::= "{HEX}"',
    f'acme_TOKEN ?= "{HEX}"',
    f"acme_api_key: {HEX}",
    f"acmeToken := `{HEX}`",
    f'var acmeToken string = "{HEX}"',
    f'acme_token: str = "{HEX}"',
    f'System.setProperty("ACME_TOKEN", "{HEX}")',
    f"<acmeToken>\n    {HEX}\n</acmeToken>",
    f'<add key="AcmePassword" value="{HEX}" />',
    f'- name: ACME_TOKEN\n  value: "{HEX}"',
    json.dumps({"acme_token": HEX}),
    json.dumps(json.dumps({"acme_token": HEX})),
    json.dumps({"config.ini": f"ACME_TOKEN={HEX}\nBACKUP=true"}),
    quote(f"acme_token={HEX}&x=1", safe=""),
    f"https://api.example.com/v1?access_token={HEX}&x=1",
    f"curl -H 'X-Api-Key: {HEX}' https://example.com",
    f"curl -u someone:{HEX} https://example.com",
    f"Authorization: Basic {base64.b64encode(HEX.encode()).decode()}",
    f'{{"Authorization": "Bearer {HEX}"}}',
    f'if (password == "{HEX}") {{',
    f'if ("{HEX}" == password) {{',
    f"deploy --token {HEX} --verbose",
    f"machine example.com login me password {HEX}",
    f"https://user:{HEX}@example.com/path",
    f"postgres://user:{HEX}@db.example.com:5432/app",
    f"apiVersion: v1\nkind: Secret\ndata:\n  a: {HEX}\n",
    f"-----BEGIN {'RSA'} PRIVATE KEY-----\n{HEX}\n{HEX}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN {'OPENSSH'} PRIVATE KEY-----\\n{HEX}\\n{HEX}\\n",
    f"aws_secret_access_key = {(HEX.upper()[:10] + 'abc/' + MIXED * 3)[:40]}",
]

KEPT = [
    "toolu_01DfqxtQSKPAjCN6F66HjqGY msg_016g3Ctp2BRLDYesUyuP7sBm req_011CY4KAigwpRGRneP2h3AiT",
    "call_AbC123dEf456GhI789jKl012 chatcmpl-9abCdEfGhIjKlMnOpQrStUvWx",
    '"tool_use_id": "toolu_01DfqxtQSKPAjCN6F66HjqGY"',
    "dd4e7d64-cb8f-47cc-8998-3585601ec2c3",
    "commit b6819179d266b40440dcf0e9a5215c296fbc8e84",
    '{"input_tokens": 1234, "max_tokens": 4096, "cache_read_input_tokens": 51799, "token_count": 7}',
    '{"token": " the", "logprob": -0.1}',
    "task-123 and a risk-based-approach-to-2024, .desk-lamp-2000-xl",
    "git@github.com:org/repo.git user@host:/srv/app ssh://git@github.com/org/repo",
    "lodash@4.17.21 @types/node @pytest.fixture icon@2x.png getty@tty1.service",
    "token = get_token()\npassword: str\nif key == other_key:\n    pass",
    'api_key=os.environ["X"]; secret = settings.SECRET_KEY; client(password=password1)',
    '"password": "${DB_PASSWORD}", token: {{ .Values.token }}, api_key = "<your key>"',
    'password = getpass.getpass("Password: ")',
    '<label for="password">Password</label><input type="password" name="password">',
    "The token is used to sign. Enter the password: then press return. Never tell a secret: it is one no more.",
    "sha256:" + HEX * 2,
    "integrity sha512-" + base64.b64encode(bytes(range(64))).decode(),
    "https://aider.chat/docs/troubleshooting/token-limits.html?page=2#secret",
    "/home/me/projects/secrets/token_store.py",
    "some_rather_long_name_of_a_function_that_was_written_in_2024()",
    "primary_key = 'user_id', public_key = '" + MIXED * 3 + "', sort_key = 'created_at_v2'",
    "ghp_" + "x" * 36,
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf",
    "Password: 2025-11-01 00:22:56 ERROR no terminal",
    "秘密のトークンは設定に書かないでください。パスワードはなし",
]


@pytest.mark.parametrize(("token", "label"), TOKENS)
def test_a_token_with_a_known_beginning_is_masked_anywhere(token, label):
    """A provider's token is masked wherever it stands, and the text around it is kept."""
    assert mask(f"Use {token}, please.") == f"Use {label}, please."
    assert token not in mask(json.dumps({"log": f"line\n{token}\nline"}))


@pytest.mark.parametrize("text", ASSIGNED)
def test_a_value_under_a_secret_name_is_masked_in_any_notation(text):
    """The name announces the secret in every notation of settings, code, headers and URLs."""
    assert HEX not in mask(text)
    assert has_mask(mask(text))


@pytest.mark.parametrize("text", KEPT)
def test_text_without_a_secret_is_returned_as_the_same_object(text):
    """Ids, hashes, paths, prose and code are not changed."""
    assert mask(text) is text


def test_text_around_a_secret_is_kept():
    """Names, users, hosts and schemes around a secret remain readable."""
    assert mask("password=hunter22 user=me") == "password=[PASSWORD] user=me"
    assert mask("https://user:hunter2@host.example/p?q=1") == "[PASSWORD]/p?q=1"
    assert mask(f"Authorization: Bearer {HEX}") == "Authorization: Bearer [TOKEN]"
    assert mask("mail <a.b+c@example.com>!") == "mail <[EMAIL]>!"


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "githubToken",
        "DB_PASSWORD",
        "passwd",
        "client_secret",
        "AWS_SECRET_ACCESS_KEY",
        "iamapikey",
        "auth_token",
    ],
)
def test_a_secret_name_is_recognised(name):
    """The name of a credential is recognised in any spelling."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "total_tokens",
        "max_tokens",
        "token_count",
        "tokens",
        "tokenizer",
        "key",
        "primary_key",
        "public_key",
        "keyboard",
        "token_url",
        "PWD",
        "secret_name",
        "password_hash",
        "next_page_token",
        "author",
        "passport",
        "monkey",
    ],
)
def test_a_harmless_name_is_not_a_secret_name(name):
    """Counters, public keys and names about secrets are not secret names."""
    assert not looks_secret(name)


VALUE = 'c0rrect "horse/battery ü'
KNOWN = KnownSecrets.gather(
    {"MY_TOKEN": VALUE, "APP_SECRET": "production", "HOST_KEY": "/etc/ssl/host.key", "PASSWORD": "short"},
    ["extra-value"],
)


@pytest.mark.parametrize(
    "text",
    [
        f"it is {VALUE}!",
        json.dumps({"x": f"it is {VALUE}!"}),
        json.dumps({"x": f"it is {VALUE}!"}, ensure_ascii=False),
        f"?q={quote(VALUE, safe='')}",
    ],
)
def test_a_known_value_is_masked_in_every_form(text):
    """A secret of the environment is masked literally, JSON-escaped and URL-encoded."""
    masked = mask(text, known=KNOWN)
    assert "[SECRET]" in masked
    assert "horse" not in masked


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_a_known_value_is_masked_inside_base64(before):
    """A known value is found at each of the three alignments of base64."""
    encoded = base64.b64encode((before + VALUE + "z").encode()).decode()
    assert "[SECRET]" in mask(encoded, known=KNOWN)


def test_ordinary_settings_are_not_known_secrets():
    """Words, paths and short values are not searched for, whatever the name of the variable."""
    text = "in production, see /etc/ssl/host.key; it is short"
    assert mask(text, known=KNOWN) is text
    assert mask("an extra-value", known=KNOWN) == "an [SECRET]"
    assert not KnownSecrets.gather({"PATH": "/usr/bin:/bin", "LANG": "en_US.UTF-8"})


def test_a_structure_is_masked_by_its_keys_too():
    """A value under a secret key needs no further evidence, and keys are masked like values."""
    value = {"password": "swordfish", "n": [1, ("x", {"api_key": HEX})], "me@example.com": 1, "you@example.com": 2}
    assert mask_value(value) == {
        "password": "[PASSWORD]",
        "n": [1, ("x", {"api_key": "[API_KEY]"})],
        "[EMAIL]": 1,
        "[EMAIL] 2": 2,
    }


def test_a_structure_without_a_secret_is_returned_as_the_same_object():
    """Nothing is copied if nothing is masked."""
    value = {"usage": {"input_tokens": 5}, "content": [{"type": "text", "text": "hello"}], "token": "the", "x": ("y",)}
    assert mask_value(value) is value
    assert mask_value(value)["content"] is value["content"]


@pytest.mark.slow
def test_depth_is_not_limited():
    """A structure of 20,000 levels is masked like any other."""
    clean: object = "hello"
    secret: object = "password=hunter22"
    for _ in range(20_000):
        clean, secret = [clean], {"a": secret}
    assert mask_value(clean) is clean
    secret = mask_value(secret)
    while isinstance(secret, dict):
        secret = secret["a"]
    assert secret == "password=[PASSWORD]"


def test_masks_in_a_text_are_listed():
    """A tool can tell which masks an argument contains."""
    assert masks_in("a [EMAIL] and [GITHUB_TOKEN], not [OTHER]") == {"[EMAIL]", "[GITHUB_TOKEN]"}
    assert has_mask("x [JWT]")
    assert not has_mask("x = y[KEY] [todo]")
    assert all(mask(f"password=[{label}] [{label}]: abc12345") for label in MASKS)


PIECES = st.sampled_from(
    [
        *(token for token, _ in TOKENS),
        *ASSIGNED,
        *KEPT,
        "password",
        "key",
        "token: ",
        "secret=",
        '"',
        "'",
        "\\",
        "\n",
        "=",
        "@",
        "://",
        ":",
        ".",
        "[EMAIL]",
        "[",
        "]",
        "%3D",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=20), max_size=8).map("".join)


@settings(deadline=None, max_examples=150)
@given(TEXTS)
def test_masking_twice_is_masking_once(text):
    """A masked text contains nothing more to mask, whatever its parts are."""
    once = mask(text)
    assert mask(once) is once


@settings(deadline=None)
@given(st.text(st.characters()) | st.text(st.sampled_from("\ud800\udfff\0a@:=")))
def test_every_text_is_accepted(text):
    """Lone surrogates, NULs and all other text can be masked."""
    assert isinstance(mask(text), str)


def test_a_picture_in_base64_is_kept():
    """A megabyte of base64 is not changed."""
    picture = base64.b64encode(random.Random(1).randbytes(750_000)).decode()
    text = f"data:image/png;base64,{picture}"
    assert mask(text) is text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://bob:hunter2x@db.example.com:8080/p?q=1 now", "see [PASSWORD]/p?q=1 now"),
        ("このftp://user:pa55word@example.comはBasic認証", "この[PASSWORD]はBasic認証"),
        ("https://bob:hunter2x@müller.example.de/p", "[PASSWORD]/p"),
        (
            "git clone https://bob:hunter2x@github.com/acme/shop.git",
            "git clone https://bob:[PASSWORD]@github.com/acme/shop.git",
        ),
        ("a proxy as scheme://[user:passwd@]proxy.server:port", "a proxy as scheme://[user:passwd@]proxy.server:port"),
        ("http://${USER}:${PASSWORD}@db/", "http://${USER}:${PASSWORD}@db/"),
    ],
)
def test_a_url_with_a_password_is_masked_with_its_host_unless_the_service_is_public(text, expected):
    assert mask(text) == expected


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("curl https://hooks.slack.com/services/TXXXXX/BXXXXX/XXXXXXXXXX -d x", "curl [WEBHOOK] -d x"),
        ("MY_tskey-api-AAbCCdEEfGGh-BBcDDeFFgHHiJJkLLmNNoPPq", "MY_[TOKEN]"),
        ('"AWS::IAM::AccessKey": "62d91b17309e76c8"', '"AWS::IAM::AccessKey": "62d91b17309e76c8"'),
        ("\\u001b[32mmysql -uroot -pk3Jx9QzW2b shop", "\\u001b[32mmysql -uroot -p[PASSWORD] shop"),
        ("&lt;a password=&#x27;k3Jx9QzW2b7T&#x27;&gt;", "&lt;a password=&#x27;[PASSWORD]&#x27;&gt;"),
        ("API_KEY=k3Jx9QzW2b7Tk3Jx9QzW2b7Tです", "API_KEY=[API_KEY]です"),
        (
            "\\u30d1\\u30b9\\u30ef\\u30fc\\u30c9\\u306f k3Jx9QzW2b7T",
            "\\u30d1\\u30b9\\u30ef\\u30fc\\u30c9\\u306f [PASSWORD]",
        ),
    ],
)
def test_short_parts_codes_and_encodings_hide_nothing(text, kept):
    assert mask(text) == kept
