"""A task in which every text is an attack on whoever shows it."""

import base64
import json

from orihon.task_key import TaskKey

UUID = "550e8400-e29b-41d4-a716-446655440099"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
MARKDOWN = (
    "[click](javascript:document.title='owned') ![x](http://evil.example/pixel.png) <svg onload=alert(1)>\n\n"
    '[data](data:text/html,<script>alert(1)</script>) <http://evil.example/auto> `"><script>alert(2)</script>`\n\n'
    "| a | <b onmouseover=alert(1)> |\n|---|---|\n| {{ 7 * 7 }} | {% raw %} ${1} |\n"
)
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x9b31m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x00\x08"
BIDI = "access = 'user\u202e\u2066// admin only\u2069 \u2066'"
DIFF = f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old {SCRIPT}\n+new {SCRIPT}\n"
BROKEN = base64.b64encode(b"\x89PNG\r\n\x1a\nthis is no picture").decode()
SVG = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>".encode()).decode()


def write(engine):
    """Write it; the key, the user, the model, a label, a tool and its arguments are hostile too."""
    key = TaskKey.session(SCRIPT)
    with engine.start(key, uuid=UUID, user=f"eve{SCRIPT}", model=f"m{SCRIPT}", context_length=8000) as task:
        task.add("system", SCRIPT)
        for text in (SCRIPT, MARKDOWN, TERMINAL, BIDI, "x" * 3000 + "\n" + SCRIPT):
            task.add("user", text)
        task.add(
            "user", [_picture("image/png", BROKEN), _picture("image/svg+xml", SVG), {"type": "text", "text": SCRIPT}]
        )
        task.checkpoint(SCRIPT)
        for number, result in enumerate((SCRIPT, TERMINAL, DIFF, "A" * 10_000_000, BIDI)):
            task.window()
            call = {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": f"run{SCRIPT}", "arguments": json.dumps({"path": SCRIPT, "text": TERMINAL})},
            }
            message = {"role": "assistant", "content": MARKDOWN, "tool_calls": [call]}
            task.add_reply(
                {
                    "choices": [{"message": message}],
                    "model": SCRIPT,
                    "usage": {"prompt_tokens": 9, "completion_tokens": 1},
                }
            )
            for pending in task.pending_calls():
                with task.tool(pending) as run:
                    run.result = result
        task.fail(f"Error: {SCRIPT}{TERMINAL}")


def _picture(media_type, data):
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}
