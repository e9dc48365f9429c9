"""A task whose windows were folded, summarised, rewound and left by a tangent, with each window as it was sent."""

import json

UUID = "550e8400-e29b-41d4-a716-446655440021"


def play(engine, *, uuid=UUID, turns=24, user=None, key="github/acme/shop/issue/21", **options):
    """Return the rendered windows, by the number of the call."""
    sent = []

    def turn(text, calls=()):
        window = task.window()
        sent.append(window.openai())
        message = {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})
        usage = {
            "prompt_tokens": window.tokens,
            "completion_tokens": 40,
            "prompt_tokens_details": {"cached_tokens": window.tokens // 2},
        }
        task.add_reply({"choices": [{"message": message}], "model": "gpt-4o", "usage": usage})

    options = {"context_length": 6000, "model": "gpt-4o"} | options
    with engine.start(key, uuid=uuid, user=user, **options) as task:
        task.add("system", "You fix bugs.")
        task.add("user", "The total of the basket is wrong. Please **fix** it.")
        for number in range(1, turns + 1):
            path = f"shop/part_{number}.py"
            call = {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
            }
            turn(f"I look at `{path}`.", [call])
            with task.tool(task.pending_calls()[0]) as run:
                run.result = "\n".join(f"{line}: value_{number}_{line} = {line * number}" for line in range(40))
            if number == 5:
                with task.tangent():
                    task.add("user", "By the way, what is a basket?")
                    turn("A basket holds items.")
            if number == 10:
                task.add("user", "Go astray.")
                turn("I went astray.")
                task.rewind(task.log.last - 2)
            if number == 20:
                task.compact()
        turn("Done.")
    return sent
