"""Notations in which people and tools write a secret, each with many drawn values; and texts that only look so."""

from __future__ import annotations

import random
import string
from urllib.parse import quote

import pytest

from orihon.redaction import mask

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
RUN = 8  # so many characters of a secret in a row are a leak
AWS_ID = "AKIA" + "IOSFODNN7ABCDEFG"

PASSWORDS = [
    "DRIVER=x;SERVER=db;UID=sa;PWD={};",
    '"Server=x;Uid=a;PWD={};Port=1"',
    "db.example.com:5433:shop:bob:{}",
    "localhost:6432:*:postgres:{}\n",
    "*:*:*:bob:{}",
    'variable "db_password" {{\n  default = "{}"\n}}',
    'variable "db_password" {{\n  type = string\n  default = "{}"\n}}',
    'network={{\n    psk="{}"\n    key_mgmt=WPA-PSK\n}}',
    "WIFI_PSK={}",
    "echo {} | sudo -S ls",
    "printf '{}\\n' | sudo -S ls",
    "sudo -S ls <<< {}",
    "chpasswd <<< bob:{}",
    "(password={})",
    "login(user=bob, password={})",
    "password -> {}",
    "password={}.txt",
    "12:curl -u bob:{} https://example.com",
    "<td>mysql -uroot -p{} shop</td>",
    "+mysql -uroot -p{} shop",
]
SHORT = [
    "API_KEY={}",
    "api_key: {}",
    "token={}",
    "SECRET_KEY={}",
    "AUTH_TOKEN={}",
    '"token": "{}"',
    "--api-key={}",
    "?token={}&x=1",
]
AWS = [
    "AWS Secret Access Key [None]: {}",
    "AWS Secret Access Key [****************ABCD]: {}",
    "aws configure set aws_secret_access_key {}",
    "--secret-key {}",
    "SecretAccessKey {}",
    AWS_ID + " / {}",
    "id " + AWS_ID + " secret {}",
    "mc alias set x http://h " + AWS_ID + " {}",
]
COOKIES = [
    "curl -b session={} https://example.com",
    "curl -b 'session={}' https://example.com",
    'curl --cookie "sid={}" https://example.com',
    'requests.get(url, cookies={{"sessionid": "{}"}})',
    "cookies.set('session', '{}')",
    's.cookies["session"] = "{}"',
    '"cookies": [{{"name": "session", "value": "{}"}}]',
    ".example.com\tTRUE\t/\tTRUE\t1999999999\tsessionid\t{}",
    "connect.sid={}",
    "sessionid={}",
    "session_cookie={}",
]
TOKENS = [
    "wandb login {}",
    "wandb login --relogin {}",
    "snyk auth {}",
    "ngrok authtoken {}",
    "npm config set //registry.example.com/:_authToken {}",
    "twine upload -u __token__ -p {}",
    "echo {} | gh auth login --with-token",
    "gh auth login --with-token <<< {}",
    "DD_API_KEY={},",
    "1,DD_API_KEY={},x",
    "api_key={}.txt",
    "TOKEN={}.md",
    "secret={}.json",
    "DD_API_KEY={}.env",
]
CASES = [
    *((text, LETTERS, 12) for text in PASSWORDS),
    *((text, LETTERS, 9) for text in SHORT),
    *((text, LETTERS + "+/", 40) for text in AWS),
    *((text, LETTERS, 32) for text in COOKIES),
    *((text, HEX, 40) for text in TOKENS),
]


def is_left(secret: str, masked: str) -> bool:
    return any(secret[at : at + RUN] in masked for at in range(max(1, len(secret) - RUN + 1)))


@pytest.mark.parametrize(("text", "alphabet", "length"), CASES, ids=[text for text, _, _ in CASES])
def test_nearly_all_values_of_a_notation_are_masked(text, alphabet, length):
    rng = random.Random(text)
    drawn = ["".join(rng.choice(alphabet) for _ in range(length)) for _ in range(100)]
    left = [secret for secret in drawn if is_left(secret, mask(text.format(secret)))]
    assert len(left) <= (5 if length < 10 else 2), left  # a short one may read like a name


@pytest.mark.parametrize(
    "text",
    [
        "иван@пример.рф",
        "taro@例え.テスト",
        "山田@例え.日本",
        "user@παράδειγμα.ελ",
        "alice@corp.co.jp.txt",
        "/home/bob/alice@corp.co.jp.txt",
        "notes/bob.smith@corp.co.jp",
    ],
)
def test_an_address_is_masked_whatever_its_domain_ends_with(text):
    masked = mask(f"see {text} today")
    assert "@" not in masked
    assert "[EMAIL]" in masked


@pytest.mark.parametrize(
    "text",
    [
        "PasswordHasher: argon2id",
        "password = utf8Encode(password1)",
        'password: @Value("${db.password}")',
        "Password: @inject",
        "credentials: Credentials) -> SigV4Auth:",
        'Token: "#f8f8f2",',
        "token: appJwt,",
        "token_endpoint_auth: McpOauthTokenEndpointAuth",
        "filename = 'test-44100Hz-le-1ch-4bytes.wav'",
        "token=abc123",
        "token: int32",
        "api_key: key1",
        "token=utf8",
        "PWD=/home/alice;ls",
        "echo hello | sudo -S ls",
        "echo 1 | sudo tee /sys/x",
        "12:34:56:ab:cd:ef",
        "main.go:1234:5:error:something",
        "10.0.0.1:5432:shop:bob:*",
        'variable "password_length" {\n  default = 16\n}',
        "curl -b cookies.txt https://example.com",
        "sessionid={session}",
        '"sessionId": "0199c5a1-7b7e-7c3e-9d5f-2f6a1b3c4d5e"',
        '"sessionID": "ses_6b1f0a2b3c4d5e6f7a8b9c0d"',
        "actions/checkout@v4.example.com/x",
        "logo/icon@2x.min.js",
        "ghcr.io/acme/shop@example.com",
    ],
)
def test_what_only_looks_like_a_secret_stays(text):
    assert mask(text) == text


@pytest.mark.parametrize(
    "text",
    ["12:X-Auth-Key: {}", "12:ansible_become_password: {}", "a.txt:12:Authorization: Bearer {}", "--token {}"],
)
def test_a_line_number_or_an_encoding_hides_no_name(text):
    rng = random.Random(text)
    for _ in range(50):
        secret = "".join(rng.choice(HEX) for _ in range(37))
        line = text.format(secret)
        assert not is_left(secret, mask(line))
        assert not is_left(secret, mask("https://example.com/?q=" + quote(line, safe="")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q=mysql%20-uroot%20-pk3Jx9QzW2b%20shop", "q=mysql%20-uroot%20-p[PASSWORD]%20shop"),
        ("q=DB_PASSWORD%3Dk3Jx9%2BQzW2b%26a", "q=DB_PASSWORD%3D[PASSWORD]%26a"),
        ("50%20of%20the%20keys%3A%20all", "50%20of%20the%20keys%3A%20all"),
    ],
)
def test_the_rest_of_an_encoded_text_is_kept(text, expected):
    assert mask(text) == expected
