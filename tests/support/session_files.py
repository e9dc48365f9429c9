"""Small session files of other agents, made up, with everything that the real ones have and a secret in each."""

import json

from orihon.testing.samples import TOKEN

WORDS = "The total is rounded twice: once in `basket.py`, and again when the invoice is made. I will mend the first."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def lines(*records):
    return "".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records)


def _claude(kind, content, number, **fields):
    message = {"role": kind, "content": content} | fields.pop("message", {})
    envelope = {"parentUuid": None, "isSidechain": False, "sessionId": "s-1", "version": "2.1.0", "type": kind}
    when = f"2026-02-03T04:05:{number:02}.678Z"
    return envelope | {"message": message, "uuid": f"u-{number}", "timestamp": when} | fields


def _reply(block, number, id="msg_1", **fields):
    usage = {"input_tokens": 7, "cache_read_input_tokens": 900, "output_tokens": 5}
    message = {"id": id, "type": "message", "model": "claude-made-up", "usage": usage, "stop_reason": None}
    return _claude("assistant", [block], number, message=message, **fields)


def _use(id, name, **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def _result(id, content, **fields):
    return {"type": "tool_result", "tool_use_id": id, "content": content} | fields


CLAUDE = lines(
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {"files": {}}},
    _claude("user", f"Why is the total wrong? My token is {TOKEN}.", 1, cwd="/home/alice/shop"),
    _reply({"type": "thinking", "thinking": "Let me look at it.", "signature": "c2lnbmVk"}, 2),
    _reply({"type": "text", "text": WORDS}, 3, requestId="r-1"),
    _reply(_use("toolu_1", "Read", path="shop/basket.py", note="long enough to be marked, " * 3), 4),
    {"type": "progress", "sessionId": "s-1", "data": {"type": "hook", "lines": [1, 2.5, None, True]}},
    _reply(_use("toolu_2", "Screenshot"), 5),
    _claude(
        "user", [_result("toolu_1", "def total(): ...\n" * 9)], 6, toolUseResult={"stdout": "def total(): ...\n" * 9}
    ),
    _claude("assistant", [{"type": "text", "text": "I am a helper."}], 7, isSidechain=True),
    _claude(
        "user",
        [
            _result(
                "toolu_2", [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]
            ),
            {"type": "text", "text": "Look at the picture too."},
            {"type": "mystery", "of": ["the", "future"]},
        ],
        8,
    ),
    "\n",
    _reply({"type": "text", "text": "It is done."}, 9, id="msg_2"),
    _reply(_use("toolu_3", "Bash", command="rm -rf build"), 10, id="msg_3"),
    '{"type":"user","torn',
)

STREAM = lines(
    {"type": "system", "subtype": "init", "session_id": "s-2", "tools": ["Bash"], "model": "claude-made-up"},
    {"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "評価"}]},
     "parent_tool_use_id": None, "session_id": "s-2"},
    {"type": "assistant", "message": {"id": "m2", "role": "assistant", "content": [_use("t1", "Bash", command="ls")]},
     "parent_tool_use_id": None, "session_id": "s-2"},
    {"type": "user", "message": {"role": "user", "content": [_result("t1", f"found {TOKEN}", is_error=True)]},
     "parent_tool_use_id": None, "session_id": "s-2"},
    {"type": "result", "subtype": "success", "session_id": "s-2", "total_cost_usd": 0.25},
)  # fmt: skip


def _codex(kind, **payload):
    return {"timestamp": "2026-02-03T04:05:06.000Z", "type": kind, "payload": payload}


CODEX = lines(
    _codex("session_meta", id="c-1", cwd="/home/alice/shop", cli_version="0.50.0", instructions=None),
    _codex("turn_context", model="gpt-made-up", approval_policy="never"),
    _codex("response_item", type="message", role="developer", content=[{"type": "input_text", "text": "Be brief."}]),
    _codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": f"Use {TOKEN}."}]),
    _codex("event_msg", type="user_message", message=f"Use {TOKEN}."),
    _codex("response_item", type="reasoning", summary=[], encrypted_content="gAAAA"),
    _codex("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": WORDS}]),
    _codex("response_item", type="function_call", name="shell", arguments='{"command": ["ls"]}', call_id="call_1"),
    _codex("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="call_2"),
    _codex("response_item", type="function_call_output", call_id="call_1", output='{"output":"basket.py"}'),
    _codex(
        "response_item", type="custom_tool_call_output", call_id="call_2", output={"content": "no", "success": False}
    ),
    _codex("response_item", type="local_shell_call", call_id="call_3", action={"type": "exec", "command": ["pwd"]}),
    _codex(
        "response_item", type="function_call_output", call_id="call_3", output=[{"type": "input_text", "text": "/"}]
    ),
    _codex("event_msg", type="token_count", info={"total": 12}),
    _codex("compacted", message="What came before, in short."),
    _codex("response_item", type="web_search_call", status="completed"),
    _codex("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
)

CODEX_BARE = lines(
    {"id": "c-2", "timestamp": "2025-06-01T00:00:00Z", "instructions": "Be brief.", "git": {"branch": "main"}},
    {"record_type": "state"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Hello, {TOKEN}"}]},
    {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
    {"type": "function_call_output", "call_id": "c1", "output": "ok"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
)

CODEX_SCREEN = lines({"ts": "2025-08-10T03:12:26.500Z", "dir": "meta", "kind": "session_start", "cwd": "/"})

_SWE_CALL = {"function": {"arguments": '{"command":"ls -F"}', "name": "bash"}, "id": "call_9", "type": "function"}
SWE = json.dumps(
    {
        "trajectory": [
            {"action": "ls -F", "observation": "basket.py", "execution_time": 0.25, "state": {"open": "n/a"}}
        ],
        "history": [
            {"role": "system", "content": "You work in a shell.", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": f"Mend it. {TOKEN}", "agent": "main", "message_type": "observation"},
            {"role": "assistant", "content": WORDS, "thought": WORDS, "action": "ls -F", "tool_calls": [_SWE_CALL]},
            {"role": "tool", "content": "basket.py", "agent": "main", "tool_call_ids": ["call_9"]},
        ],
        "info": {"exit_status": "submitted", "model_stats": {"instance_cost": float("nan")}},
        "replay_config": None,
    },
    indent=1,
)

SWE_STEPS = json.dumps(
    {
        "environment": "swe_main",
        "trajectory": [
            {"action": "ls", "response": WORDS, "observation": "basket.py", "state": "{}", "thought": "look"},
            {"action": "submit", "response": "submit", "observation": f"{TOKEN}", "state": "{}", "thought": ""},
        ],
        "info": {},
    }
)

MINI = json.dumps(
    {
        "info": {"exit_status": "Submitted", "submission": "diff --git …", "mini_version": "1.15.0"},
        "messages": [
            {"role": "system", "content": "You are a helper with a shell."},
            {"role": "user", "content": f"Mend the total. {TOKEN}"},
            {
                "role": "assistant",
                "content": f"{WORDS}\n\n```bash\nls -la\n```",
                "extra": {"response": {"content": WORDS}},
            },
            {"role": "user", "content": "<returncode>0</returncode>\n<output>\nbasket.py\n</output>"},
            {"role": "exit", "content": "Submitted", "extra": {"exit_status": "Submitted"}},
        ],
        "trajectory_format": "mini-swe-agent-1",
        "instance_id": "shop-1",
    },
    indent=2,
)

OPENHANDS = lines(
    {
        "issue": {"owner": "acme", "repo": "shop", "number": 27, "title": "The total is wrong"},
        "history": [
            {"content": f"Please fix it. {TOKEN}", "action": "message", "wait_for_response": False},
            {"command": "ls", "thought": WORDS, "keep_prompt": True, "action": "run", "action_risk": None},
            {"content": "basket.py", "command_id": -1, "command": "ls", "exit_code": 1, "observation": "run"},
            {"code": "print(1)", "thought": "", "action": "run_ipython", "kernel_init_code": ""},
            {"content": "1", "code": "print(1)", "observation": "run_ipython"},
            {"outputs": {}, "thought": "All is well.", "action": "finish"},
        ],
        "git_patch": "diff --git …",
        "metrics": {"accumulated_cost": 0.5},
    },
    {
        "instance_id": "shop-2",
        "history": [
            [
                {"id": 0, "timestamp": "2026-01-02T03:04:05.678", "source": "agent", "action": "system",
                 "args": {"content": "You are a helper.", "tools": []}},
                {"id": 1, "source": "user", "action": "message", "args": {"content": "Mend the total."}},
            ],
            [
                {"id": 2, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "", "timeout": 5},
                 "tool_call_metadata": {"tool_call_id": "call_7", "function_name": "execute_bash"}},
                {"id": 3, "source": "agent", "cause": 2, "observation": "run", "content": "basket.py",
                 "extras": {"metadata": {"exit_code": 0}}},
            ],
            [
                {"id": 4, "source": "environment", "observation": "agent_state_changed", "content": "", "extras": {}},
                {"id": 5, "source": "environment", "cause": 99, "observation": "error", "content": "out of money"},
            ],
        ],
    },
)  # fmt: skip

_AMAZON_ENTRY = {
    "user": {
        "additional_context": "", "env_context": {"env_state": {"operating_system": "linux"}},
        "content": {"Prompt": {"prompt": f"See {TOKEN}"}},
        "timestamp": "2025-10-25T10:00:00.123456789+09:00", "images": None,
    },
    "assistant": {
        "ToolUse": {
            "message_id": "a1", "content": "I look.",
            "tool_uses": [{"id": "tooluse_1", "name": "fs_read", "orig_name": "fs_read", "args": {"path": "basket.py"},
                           "orig_args": {"path": "basket.py"}}],
        }
    },
    "request_metadata": {"request_id": "r1", "model_id": "claude-sonnet-4", "message_id": "a1"},
}  # fmt: skip
_AMAZON_RESULT = {
    "user": {
        "additional_context": "",
        "content": {"ToolUseResults": {"tool_use_results": [
            {"tool_use_id": "tooluse_1", "status": "Success",
             "content": [{"Text": "def total(): ..."}, {"Json": {"exit": 0}}]},
        ]}},
        "timestamp": None,
    },
    "assistant": {"Response": {"message_id": "a2", "content": WORDS}},
    "request_metadata": None,
}  # fmt: skip
AMAZON_Q = json.dumps({
    "conversation_id": "550e8400-e29b-41d4-a716-446655440000", "next_message": None,
    "history": [_AMAZON_ENTRY, _AMAZON_RESULT], "valid_history_range": [0, 2],
    "transcript": ["> See it", "I look.\n[Tool uses: fs_read]", f"{WORDS}\n[Tool uses: none]"],
    "tools": {"native___": []}, "latest_summary": None, "model_info": {"model_id": "claude-sonnet-4"},
})  # fmt: skip
AMAZON_Q_PAIRS = json.dumps({
    "conversation_id": "1", "history": [
        [{"content": {"Prompt": {"prompt": "ls"}}}, {"Response": {"message_id": None, "content": "There is a."}}],
        [{"content": {"CancelledToolUses": {"prompt": "No.",
                                            "tool_use_results": [{"tool_use_id": "t9", "content": []}]}}},
         {"Response": {"content": "I wait."}}],
    ],
})  # fmt: skip

_TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "basket.py"}'}}
OPENAI = lines(
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": f"See {TOKEN}"},
                                 {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]},
    {"role": "assistant", "content": None, "tool_calls": [_TOOL_CALL], "refusal": None},
    {"role": "tool", "tool_call_id": "call_1", "content": "def total(): ..."},
    {"role": "assistant", "content": WORDS, "annotations": [{"type": "url"}]},
)  # fmt: skip

OPENAI_CONVERSATIONS = lines(
    {"messages": [{"role": "user", "content": f"one {TOKEN}"}, {"role": "assistant", "content": "1"}], "id": 1},
    {"messages": [{"role": "user", "content": "two"},
                  {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": "{}"}},
                  {"role": "function", "name": "add", "content": "2"}], "id": 2},
)  # fmt: skip

OPENAI_DOCUMENT = json.dumps(
    {"model": "gpt-made-up", "messages": [{"role": "user", "content": f"hello {TOKEN}"}]}, indent=1
)

SAMPLES = {
    "claude": ("claude-code", CLAUDE, ["user assistant tool tool user assistant assistant tool"]),
    "stream": ("claude-code", STREAM, ["assistant assistant tool"]),
    "codex": ("codex", CODEX, ["system user assistant tool tool assistant tool assistant"]),
    "codex bare": ("codex", CODEX_BARE, ["user assistant tool assistant"]),
    "swe-agent": ("swe-agent", SWE, ["system user assistant tool"]),
    "swe-agent without history": ("swe-agent", SWE_STEPS, ["assistant user assistant user"]),
    "mini-swe-agent": ("mini-swe-agent", MINI, ["system user assistant user"]),
    "openhands": ("openhands", OPENHANDS, ["user assistant tool assistant tool assistant",
                                           "system user assistant tool user"]),
    "amazon-q": ("amazon-q", AMAZON_Q, ["user assistant tool assistant"]),
    "amazon-q pairs": ("amazon-q", AMAZON_Q_PAIRS, ["user assistant tool user assistant"]),
    "openai": ("openai", OPENAI, ["system user assistant tool assistant"]),
    "openai conversations": ("openai", OPENAI_CONVERSATIONS, ["user assistant", "user assistant tool"]),
    "openai document": ("openai", OPENAI_DOCUMENT, ["user"]),
}  # fmt: skip
