"""A structure and the same content as JSON text are masked alike.

Values are generated when the tests run, from a fixed seed, so that no secret scanner finds a token in this file.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from bench.shapes import fill

from orihon.ingest import Sanitiser
from orihon.records import Call, ToolCall
from orihon.redaction import mask, mask_value

DRAWS = 30


def fill_value(structure: Any, value: str) -> Any:
    """Return a structure with a value in place of VALUE."""
    return json.loads(json.dumps(structure).replace("VALUE", value))


def drawn(shape: str) -> list[str]:
    rng = random.Random(shape)
    return [fill(shape, rng) for _ in range(DRAWS)]


PASSWORDS = drawn("{62:5}{num:2}{62:6}")
STRUCTURES = [
    {"headers": [["X-Api-Key", "VALUE{62:20}"]]},
    {"headers": ["Authorization", "VALUE"]},
    {"cmd": ["--password", "VALUE"]},
    {"argv": ["mysqldump", "-h", "db", "--password", "VALUE", "shop"]},
    {"argv": ["mysqldump", "-h", "db", "--password=VALUE", "shop"]},
    ["mysql", "-uroot", "-pVALUE", "shop"],
    ["sshpass", "-p", "VALUE", "ssh", "root@host"],
    ["curl", "-s", "-u", "bob:VALUE", "https://example.com"],
    ["curl", "--user", "bob:VALUE", "https://example.com"],
    ["redis-cli", "-h", "cache", "-a", "VALUE", "ping"],
    ["ldapsearch", "-x", "-w", "VALUE"],
    {"env": [{"Name": "DB_PASSWORD", "Value": "VALUE"}]},
    {"env": [{"name": "DB_PASSWORD", "value": "VALUE"}]},
    {"ParameterKey": "DbPassword", "ParameterValue": "VALUE"},
    {"label": "password", "value": "VALUE"},
    {"passwords": ["VALUE", "VALUE{62:2}"]},
    {"password": ["VALUE"]},
    {"password": {"value": "VALUE"}},
    {"db": {"password": "VALUE"}},
    {"kind": "Secret", "data": {"conf": "VALUE"}},
    {"kind": "SecretList", "items": [{"metadata": {"name": "a"}, "data": {"conf": "VALUE"}}]},
    {"kind": "List", "items": [{"kind": "Secret", "stringData": {"conf": "VALUE"}}]},
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=json.dumps)
def test_a_value_is_masked_in_a_structure_and_in_its_json(structure):
    rng = random.Random(3)
    left = []
    for value in PASSWORDS:
        filled = fill_value(json.loads(fill(json.dumps(structure), rng)), value)
        forms = [json.dumps(filled), json.dumps(filled, indent=2), json.dumps(json.dumps(filled))]
        left += [form for form in forms if value in mask(form)]
        left += [filled] if value in json.dumps(mask_value(filled)) else []
    assert left == []


def test_a_number_under_a_password_is_masked():
    assert mask_value({"password": 847362915, "retries": 3}) == {"password": "[PASSWORD]", "retries": 3}


@pytest.mark.parametrize(
    "value",
    [
        {"password": ["This field is required.", "Too short, use 12 characters."]},
        {"required": ["user", "password", "token"]},
        ["password", "username"],
        ["token", "access_token_v2"],
        {"password": {"type": "string", "description": "The password of the user"}},
        {"name": "password", "value": ""},
        {"name": "password", "value": "${DB_PASSWORD}"},
        ["tool", "--password", "--verbose"],
        ["tool", "--password-file", "/run/secrets/db"],
        ["docker", "run", "-p", "8080:80", "-u", "1000:1000", "nginx"],
        ["grep", "-a", "word1234x", "file.txt"],
        ["mkdir", "-p", "build/x86_64"],
        {"secrets": ["DB_PASSWORD", "db-credentials"]},
        {"passwords": 12345, "password": True, "passwordless": None},
        {"kind": "ConfigMapList", "items": [{"data": {"greeting": "aGVsbG8gd29ybGQsIGhvdw=="}}]},
        {"tokens": [101, 2023, 2003]},
        {"token": {"value": "hello", "id": 2075}},
    ],
    ids=json.dumps,
)
def test_harmless_values_are_kept_in_a_structure_and_in_its_json(value):
    assert mask_value(value) is value
    assert mask(json.dumps(value)) == json.dumps(value)
    assert mask(json.dumps(value, indent=2)) == json.dumps(value, indent=2)


def test_a_structure_keeps_its_type_and_its_length():
    value = {"argv": ("curl", "-u", "bob:" + PASSWORDS[0]), "words": ["-x", "y"], 3: [["Authorization", PASSWORDS[1]]]}
    assert mask_value(value) == {
        "argv": ("curl", "-u", "[PASSWORD]"),
        "words": ["-x", "y"],
        3: [["Authorization", "[TOKEN]"]],
    }


def test_the_arguments_of_a_call_and_the_record_of_its_run_agree():
    key = fill("{62:24}", random.Random(1))
    arguments = {"cmd": ["mysql", "--password", PASSWORDS[0]], "headers": [["X-Api-Key", key]]}
    sanitiser = Sanitiser()
    call = sanitiser.record(Call(id="c", name="run", arguments=json.dumps(arguments)))
    run = sanitiser.record(
        ToolCall(seq=1, tool="run", args=arguments, status="success", duration_ms=1, timestamp="2025-01-01T00:00:00Z")
    )
    assert json.loads(call.arguments) == run.args
    assert PASSWORDS[0] not in call.arguments
