"""Every history can be sent to every provider, and what was sent before is not changed by what comes after."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from orihon.context import wire
from orihon.context.repair import INTERRUPTED, repair
from support.histories import MODELS, histories, history, load, seeded
from support.wire_rules import violations

DEEP = bool(os.environ.get("ORIHON_DEEP"))
HISTORIES = 250_000 if DEEP else 5_200  # times four formats
CHUNKS = 8

RENDER = {api: getattr(wire, api) for api in wire.APIS}
TAIL = {"role": "user", "content": "Continue."}


def without_marks(value):
    """The same request without its cache marks."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def pieces_of(api, rendered):
    """The request as a flat list of what a provider's cache compares, the renderer's own last word left out."""
    if isinstance(rendered, list):
        return [item for item in rendered if {"role": item.get("role"), "content": item.get("content")} != TAIL]
    turns = rendered["messages"] if api == "anthropic" else rendered["contents"]
    flat = [[turn["role"], block] for turn in turns for block in turn.get("content") or turn.get("parts")]
    return [piece for piece in without_marks(flat) if "Continue." not in piece[1].values()]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_history_is_valid_in_every_format(chunk):
    """Repaired and rendered, for the model that made it or another, no rule of any provider is broken."""
    for seed in range(chunk, HISTORIES, CHUNKS):
        rng = seeded(seed)
        repaired = repair(history(rng))
        for api, render in RENDER.items():
            model = rng.choice((*MODELS[api], "another"))
            rendered = render(repaired, model=model, load=rng.choice((load, None)))
            assert not violations(api, rendered, model=model), f"history({seed}), {api}, {model}"


@settings(max_examples=150, deadline=None)
@given(histories)
def test_every_prefix_is_valid_in_every_format(messages):
    """A process may die after any message."""
    for end in range(len(messages) + 1):
        repaired = repair(messages[:end])
        for api, render in RENDER.items():
            for model in MODELS[api]:
                assert not violations(api, render(repaired, model=model, load=load), model=model)


def test_the_histories_reach_what_matters():
    """The cases above are no empty promise: payloads are sent back, pictures are shown, calls are interrupted."""
    sent = dict.fromkeys(RENDER, "")
    for seed in range(1500):
        repaired = repair(history(seeded(seed)))
        for api, render in RENDER.items():
            sent[api] += json.dumps(render(repaired, model=MODELS[api][0], load=load))
    reached = {
        "openai": ["reasoning_content", "image_url", "pictures of the results", "whose call is not shown"],
        "responses": ["encrypted_content", "input_image", "function_call_output"],
        "anthropic": ["signature", '"source"', "is_error", "_raw", "note from the system"],
        "gemini": ["CpQB", "skip_thought_signature_validator", "inlineData", "Continue.", "words come first"],
    }
    for api, marks in reached.items():
        for mark in (*marks, "interrupted"):
            assert sent[api].count(mark) >= 10, (api, mark)


@pytest.mark.slow
@pytest.mark.parametrize("api", wire.APIS)
def test_what_was_sent_stays_the_beginning(api):
    """Where no call is pending, one message more changes nothing that was sent before."""
    compared = 0
    for seed in range(1500):
        log = history(seeded(seed))
        model = "another" if api == "anthropic" else MODELS[api][0]  # its thinking is tested with its loops
        before = None
        for end in range(len(log) + 1):
            repaired = repair(log[:end])
            after = pieces_of(api, RENDER[api](repaired, model=model, load=load))
            if before is not None:
                compared += 1
                assert after[: len(before)] == before, f"history({seed})[:{end}]"
            pending = any(message.content == INTERRUPTED for message in repaired)
            before = None if pending else after
    assert compared > 3000


@pytest.mark.parametrize("api", ["openai", "responses"])
def test_without_merging_the_list_itself_is_a_prefix(api):
    """OpenAI's formats only ever grow at the end, message by message."""
    for seed in range(500):
        log = history(seeded(seed))
        for end in range(1, len(log)):
            repaired = repair(log[:end])
            if repaired and all(message.content != INTERRUPTED for message in repaired):
                sent = RENDER[api](repaired, model=MODELS[api][0])
                assert RENDER[api](repair(log[: end + 1]), model=MODELS[api][0])[: len(sent)] == sent


def test_marks_change_nothing_else():
    """With its marks taken out, a request to Anthropic is the one without marks; there are never more than four."""
    for seed in range(1000):
        repaired = repair(history(seeded(seed)))
        marked = wire.anthropic(repaired, model="claude-sonnet-4-5")
        assert without_marks(marked) == wire.anthropic(repaired, model="claude-sonnet-4-5", cache=False)
        assert json.dumps(marked).count('"cache_control"') <= 4


def test_rendering_leaves_the_messages_alone():
    """Payloads are sent, not changed."""
    for seed in range(500):
        repaired = repair(history(seeded(seed)))
        before = repr(repaired)
        for api, render in RENDER.items():
            render(repaired, model=MODELS[api][0], load=load)
        assert repr(repaired) == before


def test_another_process_gives_the_same_bytes():
    """Nothing depends on the order of a set, on the time, or on chance."""
    program = (
        "import json, hashlib\n"
        "from support.histories import history, seeded\n"
        "from orihon.context import wire\n"
        "from orihon.context.repair import repair\n"
        "sent = [getattr(wire, api)(repair(history(seeded(seed))), model='gpt-5')\n"
        "        for seed in range(200) for api in wire.APIS]\n"
        "print(hashlib.sha256(json.dumps(sent).encode()).hexdigest())\n"
    )
    tests = Path(__file__).parents[2]
    paths = os.pathsep.join([str(tests), *sys.path])
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": paths, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
