"""A model that follows a script, called as a client, as a function, as a summariser, and over real HTTP."""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from orihon.context.streams import ChatAccumulator
from orihon.errors import ModelError, ScriptError, UsageError
from orihon.testing import ScriptedModel, ScriptedServer, serve

ASKED = [{"role": "user", "content": "Fix it."}]
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]
CALLING = {"content": "Reading.", "tool_calls": [{"name": "read_file", "arguments": {"path": "かご.py"}}]}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": "Bearer k"})  # noqa: S310
    try:
        with OPENER.open(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_replies_come_in_order_whatever_the_way_they_are_asked_for():
    """As OpenAI's client, as a function, as a summariser."""
    with ScriptedModel(["one", CALLING, "three"]) as model:
        first = model.chat.completions.create(model="gpt-4o", messages=ASKED, tools=TOOLS, temperature=0)
        assert first.choices[0].message.content == first["choices"][0]["message"]["content"] == "one"
        assert (first.model, first.choices[0].finish_reason) == ("gpt-4o", "stop")
        message = model(ASKED).choices[0].message
        assert json.loads(message.tool_calls[0].function.arguments) == {"path": "かご.py"}
        assert message.tool_calls[0].id == "call_2_1"
        assert model.ask("Summarise.") == "three"
        with pytest.raises(AttributeError):
            _ = first.nothing
    assert [request.messages[-1]["content"] for request in model.requests] == ["Fix it.", "Fix it.", "Summarise."]
    assert model.requests[0].tools == TOOLS
    assert model.requests[0].options == {"temperature": 0}


def test_requests_are_kept_as_they_were():
    """What the caller does with his list later changes no record."""
    messages = [{"role": "user", "content": "Fix it."}]
    model = ScriptedModel(["one"])
    model(messages)
    messages.append({"role": "assistant", "content": "one"})
    assert model.requests[0].messages == ASKED


def test_a_whole_reply_is_given_as_it_is():
    """Usage, and what else a provider says, stays."""
    whole = {"id": "x", "choices": [{"message": {"role": "assistant", "content": "a"}}], "usage": {"prompt_tokens": 7}}
    model = ScriptedModel([whole, {"content": "b", "usage": {"prompt_tokens": 9}}])
    assert dict(model(ASKED)) | whole == dict(model(ASKED, model="m")) | whole | {"model": "scripted"}
    assert model.used == 2


def test_a_reply_beyond_the_end():
    """The sentence says which, and so does leaving the block when somebody swallowed it."""
    with (
        pytest.raises(ScriptError, match=r"1 request came after the end of the script\."),
        ScriptedModel(["one"]) as model,
    ):
        model(ASKED)
        with pytest.raises(ScriptError, match=r"Reply 2 was requested, but the script has 1\."):
            model(ASKED)
    assert issubclass(ScriptError, AssertionError)


def test_replies_that_nobody_asked_for():
    """Named at the end, but never in place of the first error."""
    model = ScriptedModel(["one", "two", "three"])
    with pytest.raises(ScriptError, match=r"2 of 3 replies were not used; the first of them is 'two'\."), model:
        model(ASKED)
    with pytest.raises(ZeroDivisionError), ScriptedModel(["one"]):
        1 / 0  # noqa: B018
    ScriptedModel([]).close()


def test_failures_and_functions():
    """A script can fail like a provider, raise, and look at the request."""
    replies = [
        {"status": 429, "error": "Too many requests."},
        {"error": "Away."},
        {"status": 401, "error": "Who are you?"},
        TimeoutError("no answer"),
        lambda request: f"{len(request.messages)} message",
        lambda _: 5,
    ]
    model = ScriptedModel(replies)
    for sentence, again in (("Too many", True), ("Away", True), ("Who", False)):
        with pytest.raises(ModelError, match=sentence) as caught:
            model(ASKED)
        assert caught.value.retryable is again
    with pytest.raises(TimeoutError):
        model(ASKED)
    assert model.ask("x") == "1 message"
    with pytest.raises(UsageError, match="Reply 6"):
        model(ASKED)


@pytest.mark.parametrize(
    ("messages", "more", "sentence"),
    [
        ([], {}, "at least one"),
        ("Fix it.", {}, "must be a list"),
        (["Fix it."], {}, "the shape of the API"),
        ([{"role": "robot", "content": "x"}], {}, "unknown role"),
        ([{"role": "user", "content": ""}], {}, "content is empty"),
        ([{"role": "user", "content": [5]}], {}, "the shape of the API"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], {}, "no call directly before"),
        (ASKED, {"tools": []}, "tools: omit"),
        (ASKED, {"tools": [{"name": "read_file"}]}, "a function with a name"),
    ],
)
def test_what_openai_would_refuse_is_refused(messages, more, sentence):
    """In process with an error, over HTTP with a 400; no reply is used up."""
    with ScriptedServer(ScriptedModel(["one"])) as server:
        with pytest.raises(ModelError, match=sentence) as caught:
            server.model(messages, **more)
        assert not caught.value.retryable
        status, body = post(f"{server.url}/chat/completions", {"model": "m", "messages": messages, **more})
        assert (status, body["error"]["type"]) == (400, "invalid_request_error")
        assert sentence in body["error"]["message"]
        assert body["error"]["param"] in {"messages", "tools"}
        assert post(f"{server.url}/chat/completions", {"model": "m", "messages": ASKED})[0] == 200


def test_over_http():
    """The same replies as in process, and the same complaints."""
    with (
        pytest.raises(ScriptError, match="1 request came"),
        serve([CALLING, {"status": 503, "error": "Away."}]) as server,
    ):
        url = f"{server.url}/chat/completions"
        status, reply = post(url, {"model": "gpt-4o", "messages": ASKED, "tools": TOOLS})
        assert status == 200
        assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read_file"
        assert post(url, {"model": "gpt-4o", "messages": ASKED}) == (
            503, {"error": {"message": "Away.", "type": "server_error", "param": None, "code": None}}
        )  # fmt: skip
        status, reply = post(url, {"model": "gpt-4o", "messages": ASKED})
        assert (status, reply["error"]["message"]) == (500, "Reply 3 was requested, but the script has 2.")
    assert "Bearer" not in str(server.model.requests)
    with pytest.raises(ScriptError, match="not used"), serve(["one"]):
        pass
    with pytest.raises(ZeroDivisionError), serve(["one"]):
        1 / 0  # noqa: B018


def test_a_stream():
    """The same reply in pieces, with its usage for those who ask for it; what is refused is refused without one."""
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    asked = {"model": "m", "messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
    with serve([CALLING | {"usage": usage}, CALLING, {"status": 429, "error": "Later."}]) as server:
        url = f"{server.url}/chat/completions"
        for wanted in (usage, None):
            whole = ScriptedModel([CALLING])(ASKED)["choices"][0]["message"]
            gathered = ChatAccumulator()
            request = urllib.request.Request(url, json.dumps(asked).encode())  # noqa: S310
            with OPENER.open(request, timeout=20) as answer:
                lines = [line.decode().strip().removeprefix("data: ") for line in answer if line.strip()]
            assert lines.pop() == "[DONE]"
            said = "".join(gathered.add(json.loads(line)) for line in lines)
            reply = gathered.finish()
            message = reply["choices"][0]["message"]
            assert said == message["content"] == "Reading."
            assert message["tool_calls"][0]["function"] == whole["tool_calls"][0]["function"]
            assert (reply.get("usage"), reply["choices"][0]["finish_reason"]) == (wanted, "tool_calls")
        assert post(url, asked) == (
            429, {"error": {"message": "Later.", "type": "invalid_request_error", "param": None, "code": None}}
        )  # fmt: skip
    with pytest.raises(ModelError, match="only the server streams"):
        ScriptedModel(["one"])(ASKED, stream=True)


def test_what_is_no_request_at_all():
    """A wrong address, no JSON, no model, a script that raises: an answer each time, and the server lives."""
    with serve([ValueError("odd"), "one"]) as server:
        url = f"{server.url}/chat/completions"
        assert post(url.replace("/v1", "/v2"), {})[0] == 404
        assert post(url, b"{")[0] == 400
        assert post(url, [])[1]["error"]["param"] == "model"
        assert post(url, {"messages": ASKED})[0] == 400
        with pytest.raises(urllib.error.HTTPError) as caught:
            OPENER.open(url, timeout=20)
        with caught.value as error:
            assert error.code == 404
        assert post(url, {"model": "m", "messages": ASKED})[1]["error"]["message"] == "ValueError: odd"
        assert post(url, {"model": "m", "messages": ASKED})[0] == 200


def test_many_at_once():
    """Each request gets a reply of its own."""
    with serve([f"{number}" for number in range(24)]) as server:
        got = []

        def ask():
            for _ in range(6):
                reply = post(f"{server.url}/chat/completions", {"model": "m", "messages": ASKED})[1]
                got.append(int(reply["choices"][0]["message"]["content"]))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(24))


def test_a_script_in_a_file(tmp_path):
    """JSON or YAML, the same list; what cannot be read is refused with the reason."""
    (tmp_path / "script.json").write_text(json.dumps(["one", CALLING]), "utf-8")
    (tmp_path / "script.yaml").write_text(
        """
- one
- content: Reading.
  tool_calls:
    - name: read_file
      arguments: {path: かご.py}
""",
        "utf-8",
    )
    assert ScriptedModel(tmp_path / "script.json").replies == ScriptedModel(str(tmp_path / "script.yaml")).replies
    for name, text, sentence in (
        ("no.json", "{", "cannot be read"),
        ("no.yaml", "- [", "cannot be read"),
        ("none.yaml", "a: 1", "not a list"),
        ("odd.yaml", "- 5", "Reply 1 of the script is not a reply"),
        ("call.yaml", "- tool_calls: [{nome: a}]", "has no name"),
    ):
        (tmp_path / name).write_text(text, "utf-8")
        with pytest.raises(UsageError, match=sentence):
            ScriptedModel(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        ScriptedModel(tmp_path / "nothing.yaml")


def test_pytest_is_not_needed_for_it():
    """Whoever runs an example has only the package itself."""
    program = "import sys; from orihon.testing import ScriptedModel, serve; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
