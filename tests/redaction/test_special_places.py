"""Secrets in special places: values that look like something else, command lines, key files, tables, other languages.

Values are generated when the tests run, from a fixed seed, so that no secret scanner finds a token in this file.
"""

from __future__ import annotations

import random

import pytest
from bench.shapes import fill

from orihon.redaction import mask

DRAWS = 60
PASSWORD = "{62:4}{num:1}{az:2}{num:1}{62:4}"


def find_leaks(template: str, shape: str = PASSWORD, max_share: float = 0.0) -> list[str]:
    """Return the texts in which a value is left, if they are more than the allowed share."""
    rng = random.Random(template + shape)
    texts = []
    for _ in range(DRAWS):
        value = fill(shape, rng)
        text = fill(template, rng).replace("VALUE", value)
        texts += [text] if value in mask(text) else []
    return texts if len(texts) > max_share * DRAWS else []


@pytest.mark.parametrize(
    ("template", "shape", "max_share"),
    [
        ("DB_PASSWORD=VALUE.md", "{low:6}{num:1}{low:6}{num:1}{low:2}", 0.05),
        ("DB_PASSWORD=VALUE.xyz\n", "{abc:2}{num:1}{abc:2}{num:1}{abc:4}", 0.05),
        ("DB_PASSWORD=VALUE", "{abc:5}-{abc:5}-{abc:6}-{abc:4}", 0),
        ("DB_PASSWORD=VALUE", "{62:3}{num:1}#todo!{62:3}{num:1}", 0.2),
        ("DB_PASSWORD=<VALUE>", PASSWORD, 0.05),
        ("DB_PASSWORD=[VALUE]", PASSWORD, 0.05),
        ("DB_PASSWORD=%VALUE", PASSWORD, 0.05),
        ("DB_PASSWORD=~/VALUE", PASSWORD, 0.05),
        ("DB_PASSWORD=VALUE\n", "$" + PASSWORD, 0.05),
        ("DB_PASSWORD='VALUE'", "{62:2} {az:1}{num:1}{ABC:1}{abc:2}{num:1}{62:2}", 0.05),
        ("DB_PASSWORD=VALUE\nDB_HOST=db\n", "{62:5};{62:6}", 0.02),
        ("DB_PASSWORD=VALUE\nDB_HOST=db\n", "{62:4}&{62:8}", 0.02),
        ("DB_PASSWORD=VALUE\n", "{62:5}<{62:6}", 0.02),
        ("JWT_SECRET=VALUE", "{abc:16}", 0),
        ('{"password":\n   "VALUE"}', PASSWORD, 0),
        ("password:\n  VALUE\n", PASSWORD, 0.05),
        ("$config = ['password' =>\n  'VALUE'];", PASSWORD, 0),
        ('SECRET_KEY="VALUE"', "{django:50}", 0.02),
        ("SECRET_KEY = 'django-insecure-VALUE'", "{django:50}", 0.02),
        ("VAULT_TOKEN=VALUE", "s.{62:24}", 0.05),
        ("      MYSQL_ROOT_PASSWORD: VALUE\n", PASSWORD, 0),
        ("[32mDB_PASSWORD=VALUE[0m", PASSWORD, 0),
        ("\x9b32mDB_PASSWORD\x9b0m=VALUE\x9b0m", PASSWORD, 0),
    ],
)
def test_a_value_under_a_clear_name_is_masked_whatever_it_resembles(template, shape, max_share):
    assert find_leaks(template, shape, max_share) == []


@pytest.mark.parametrize(
    "template",
    [
        "ldapsearch -x -D cn=admin,dc=example -w VALUE -b dc=example",
        "redis-cli -h cache -a VALUE ping",
        "http -a bob:VALUE https://example.com",
        "useradd -m -p VALUE bob",
        "echo 'bob:VALUE' | sudo chpasswd",
        "htpasswd -b .htpasswd bob VALUE",
        "htpasswd -nbB bob VALUE",
        "openssl enc -aes-256-cbc -k VALUE -in a",
        "kubectl create secret generic x --from-literal=foo=VALUE",
        "gh secret set X --body VALUE",
        "flyctl secrets set FOO=VALUE BAR=VALUE",
        "vault kv put secret/app value=VALUE",
        "[sudo] password for bob: VALUE",
        "Password for bob: VALUE\n",
        'ConvertTo-SecureString "VALUE" -AsPlainText -Force',
        "ConvertTo-SecureString -String 'VALUE' -AsPlainText",
        "sqlplus -s scott/VALUE@db",
        "jdbc:oracle:thin:scott/VALUE@//db:1521/X",
        "setx API_TOKEN VALUE{62:8}",
    ],
)
def test_a_password_on_a_command_line_is_masked(template):
    assert find_leaks(template, max_share=0.02) == []


@pytest.mark.parametrize(
    ("template", "shape"),
    [
        ("x-honeycomb-team: VALUE", "{hex:32}"),
        ("Set-Cookie: session=VALUE; HttpOnly; Path=/", ".eJ{url:60}.{url:6}.{url:27}"),
        ("Cookie: session=VALUE", "eyJ{62:20}.{url:6}.{url:27}"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\nVALUE\nPrivate-MAC: x", "{b64:48}"),
        ("id_rsa:1:-----BEGIN RSA PRIVATE KEY-----\nid_rsa:2:VALUE\nid_rsa:3:{b64:64}\n", "{b64:64}"),
        ("{b64:70}\nVALUE\n{b64:20}==\n-----END OPENSSH PRIVATE KEY-----", "{b64:70}"),
        ("  12\tVALUE\n  13\t{b64:20}==\n  14\t-----END PRIVATE KEY-----", "{b64:64}"),
    ],
)
def test_a_private_key_or_a_session_is_masked(template, shape):
    assert find_leaks(template, shape) == []


@pytest.mark.parametrize(
    "template",
    [
        "user,password\nbob,VALUE\nalice,{62:9}{num:3}\n",
        'id;name;password;role\n1;"bob";"VALUE";admin\n',
        "| user | password |\n|---|---|\n| bob | VALUE |\n",
        "| user | Password | host |\n|:--|--|--:|\n| bob | `VALUE` | db |\n",
        '{"stdout": "user,password\\nbob,VALUE\\n"}',
        "login\tpassword\nbob\tVALUE\n",
    ],
)
def test_a_column_of_passwords_is_masked(template):
    assert find_leaks(template, max_share=0.02) == []


@pytest.mark.parametrize(
    "template",
    [
        "Пароль: VALUE",
        '"пароль": "VALUE"',
        "contraseña: VALUE",
        '{"contrase\\u00f1a": "VALUE"}',
        "La contraseña es VALUE",
        "contrasena=VALUE",
        "senha: VALUE",
        "DB_SENHA=VALUE",
        "mot de passe : VALUE",
        "MotDePasse=VALUE",
        "비밀번호: VALUE",
        "密码：VALUE",
        "Kennwort: VALUE",
    ],
)
def test_a_password_is_masked_in_other_languages(template):
    assert find_leaks(template, max_share=0.02) == []


@pytest.mark.parametrize(
    "text",
    [
        "ws-proxy-deployment-5f7d8c9b6d-abcde",
        "pod/ls-indexer-worker-7d9f8c6b54-x2k4j Running",
        "as-gateway-api-6b8f9d7c5f 1/1",
        "DB_PASSWORD=$DB_PASSWORD_2",
        "DB_PASSWORD=$dbPassword1",
        "DB_PASSWORD=<your-password>",
        "DB_PASSWORD=[REDACTED]",
        "DB_PASSWORD=%DB_PASSWORD%",
        "DB_PASSWORD=~/.secrets/db",
        "DB_PASSWORD=config.database.password",
        "password: must-match-the-other",
        "password:\n  type: string\n",
        "password:\n  description\n",
        "password:\n- one\n- two\n",
        '"password":\n  "string"',
        "def login(user, password):\n    connect(user, password)\n",
        "user, password = get()\na1b2c3d4, e5f6g7h8 = x\n",
        "| field | password |\n|---|---|\n| type | string |\n| required | yes |\n",
        "name,password\nbob,required\nalice,\n",
        "curl -k https://example.com/a1b2c3d4e5",
        "ls -a d41d8cd98f00b204",
        "grep -w k9Kz2Qw8x1 file.txt",
        "openssl s_client -connect example.com:443",
        "kubectl get secret db -o yaml",
        "Run `htpasswd -b file user password` first.",
        "gh secret set DEPLOY_KEY < key.pem",
        'gh secret set TOKEN --body "$TOKEN"',
        "SecureString password = ReadPassword();",
        "-----END PRIVATE KEY-----",
        "The file ends with -----END RSA PRIVATE KEY----- and a line end.",
        "пароль должен быть длинным",
        "la contraseña es obligatoria",
        "senha: obrigatória",
        "비밀번호: 필수",
        "PASSWORD_HASHERS=django.contrib.auth.hashers.Argon2PasswordHasher",
        "SECRET_KEY = env('SECRET_KEY')",
    ],
)
def test_text_without_a_secret_is_kept(text):
    assert mask(text) is text
