"""Convert a model's reply, from any of five APIs, to a message: text, calls, usage, and the provider's own payload.

Accepted are the replies of OpenAI chat completions (and what speaks like it), OpenAI Responses, Anthropic Messages,
Gemini and Ollama, as the objects of their SDKs or as dicts. Arguments that come as text are kept byte for byte; those
that come as objects become compact JSON in the order of the model. Usage is normalised: input includes what came from
the cache. The provider's own payload is kept only when it says more than text and calls do: reasoning, signatures,
the provider's own tools. A call of Anthropic's whose `input` is a text was cut off: the text is kept as the arguments,
which nobody can run, and the payload, which nobody would take back, is not.

The message is unstamped: `seq=0`, no time, no tokens; a store gives it those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from orihon.codec import clean_value
from orihon.coerce import dump_model, to_optional_text, unwrap
from orihon.errors import ModelError, UsageError
from orihon.records import MOST, Call, Message, Native, Usage

Items = list[Any]

ACCEPTED = "OpenAI chat completions, OpenAI Responses, Anthropic Messages, Gemini generateContent, Ollama chat"


class ParsedItems(NamedTuple):
    """The text and the calls in a provider's items."""

    text: str
    calls: list[Call]


def parse_reply(reply: Any, api: str | None = None) -> Message:
    """Return the reply as a message; raise UsageError if it is no reply, ModelError if it is empty."""
    api = to_optional_text(api, "api")
    if api is not None and api not in _READERS:
        raise UsageError(f"There is no API called {api!r}.", hint=f"Use one of: {', '.join(_READERS)}.")
    try:
        value = _completion(to_plain(reply))
        return _READERS[api or _recognise(value)](value)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError) as error:
        raise UsageError(
            f"This is not a model's reply: {_describe(reply)}.",
            hint=f"Pass the whole reply of one of these: {ACCEPTED}.",
        ) from error


def _completion(value: Any) -> Any:
    """Return a bare text, or the bare message of an assistant, as the completion that it would come in."""
    if isinstance(value, str):
        value = {"role": "assistant", "content": value}
    if isinstance(value, dict) and value.get("role") == "assistant" and value.get("type") != "message":
        return {"choices": [{"message": value}]}
    return value


def read_items(api: str, items: Items) -> ParsedItems:
    """Return the text and the calls in the native items of a message."""
    if api == "anthropic":
        return _read_anthropic_items(items)
    return _read_responses_items(items) if api == "responses" else _read_gemini_items(items)


def _recognise(value: dict[str, Any]) -> str:
    if isinstance(value.get("choices"), list | tuple):
        return "openai"
    if isinstance(value.get("output"), list | tuple):
        return "responses"
    if value.get("type") == "message" and isinstance(value.get("content"), list | tuple):
        return "anthropic"
    if "candidates" in value or "promptFeedback" in value:
        return "gemini"
    return "ollama" if isinstance(value.get("message"), dict) and "done" in value else ""


def to_plain(value: Any) -> Any:
    """Return a value of an SDK as builtins under the names of the wire."""
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes,))
    except TypeError:  # it holds an object of an SDK, or a subclass of a builtin
        return _unwrap(value)


def _unwrap(value: Any) -> Any:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return dump_model(value, mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, str | bytes | int | float | Enum | None):
        return unwrap(value)
    if isinstance(value, Mapping):
        return {key: _unwrap(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unwrap(item) for item in value]
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return _unwrap({key: item for key, item in vars(value).items() if not key.startswith("_")})
    return value


def _describe(reply: Any) -> str:
    if isinstance(reply, dict):
        return f"a dict with the keys {', '.join(sorted(map(str, reply))[:8]) or '(none)'}"
    return f"a value of type {type(reply).__name__}"


def _message(said: ParsedItems, *, model: str, usage: Usage | None, native: Native | None) -> Message:
    return Message(
        seq=0,
        role="assistant",
        content=said.text,
        tool_calls=said.calls,
        native=native,
        model=model if isinstance(model, str) and model else None,
        usage=usage,
        timestamp="",
        tokens=0,
    )


def _read_openai(value: dict[str, Any]) -> Message:
    if not value.get("choices"):
        raise ModelError("The reply has no choices.", retryable=True)
    message = value["choices"][0].get("message") or {}
    calls = [
        _call(call.get("id"), call["function"]["name"], call["function"].get("arguments"))
        for call in message.get("tool_calls") or ()
        if "function" in call
    ]
    if legacy := message.get("function_call"):
        calls.append(_call(None, legacy["name"], legacy.get("arguments")))
    kept = {name: message[name] for name in ("reasoning_content", "reasoning_details") if message.get(name)}
    model = value.get("model") or ""
    return _message(
        ParsedItems(_joined(message.get("content")) or message.get("refusal") or "", calls),
        model=model,
        usage=_openai_usage(value.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details"),
        native=Native(api="openai", model=model, items=[kept]) if kept else None,
    )


def _read_responses(value: dict[str, Any]) -> Message:
    items, model = _without_nulls(value.get("output")), value.get("model") or ""
    plain = all(item.get("type") in {"message", "function_call"} for item in items)
    return _message(
        _read_responses_items(items),
        model=model,
        usage=_openai_usage(value.get("usage"), "input_tokens", "output_tokens", "input_tokens_details"),
        native=None if plain else Native(api="responses", model=model, items=items),
    )


def _read_anthropic(value: dict[str, Any]) -> Message:
    items, model = _without_nulls(value.get("content")), value.get("model") or ""
    plain = all(item.get("type") in {"text", "tool_use"} for item in items)
    cut = any(item.get("type") == "tool_use" and isinstance(item.get("input"), str) for item in items)
    usage = value.get("usage") or {}
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    counted = Usage(
        input_tokens=_count(usage, "input_tokens") + read + written,
        output_tokens=_count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    return _message(
        _read_anthropic_items(items),
        model=model,
        usage=counted if usage else None,
        native=None if plain or cut else Native(api="anthropic", model=model, items=items),
    )


def _read_gemini(value: dict[str, Any]) -> Message:
    if not value.get("candidates"):
        reason = (value.get("promptFeedback") or {}).get("blockReason") or "it names no reason"
        raise ModelError(f"Gemini gave no answer: {reason}.")
    parts = _without_nulls((value["candidates"][0].get("content") or {}).get("parts"))
    model = value.get("modelVersion") or ""
    plain = all(part.keys() <= {"text"} or part.keys() == {"functionCall"} for part in parts)
    usage = value.get("usageMetadata") or {}
    counted = Usage(
        input_tokens=_count(usage, "promptTokenCount", "toolUsePromptTokenCount"),
        output_tokens=_count(usage, "candidatesTokenCount", "thoughtsTokenCount"),
        cache_read_tokens=_count(usage, "cachedContentTokenCount"),
    )
    return _message(
        _read_gemini_items(parts),
        model=model,
        usage=counted if usage else None,
        native=None if plain else Native(api="gemini", model=model, items=parts),
    )


def _read_ollama(value: dict[str, Any]) -> Message:
    message, model = value.get("message") or {}, value.get("model") or ""
    calls = [
        _call(call.get("id"), call["function"]["name"], call["function"].get("arguments"))
        for call in message.get("tool_calls") or ()
    ]
    usage = Usage(input_tokens=_count(value, "prompt_eval_count"), output_tokens=_count(value, "eval_count"))
    thinking = message.get("thinking")
    return _message(
        ParsedItems(message.get("content") or "", calls),
        model=model,
        usage=usage if usage != Usage() else None,
        native=Native(api="ollama", model=model, items=[{"thinking": thinking}]) if thinking else None,
    )


_READERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "openai": _read_openai,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}


def _read_anthropic_items(items: Items) -> ParsedItems:
    calls = [_call(item["id"], item["name"], item.get("input")) for item in items if item.get("type") == "tool_use"]
    return ParsedItems("".join(item["text"] for item in items if item.get("type") == "text"), calls)


def _read_responses_items(items: Items) -> ParsedItems:
    calls = [
        _call(item["call_id"], item["name"], item.get("arguments"))
        for item in items
        if item.get("type") == "function_call"
    ]
    return ParsedItems("".join(_joined(item.get("content")) for item in items if item.get("type") == "message"), calls)


def _read_gemini_items(parts: Items) -> ParsedItems:
    calls = [
        _call(call.get("id"), call["name"], call.get("args"))
        for call in (part["functionCall"] for part in parts if "functionCall" in part)
    ]
    return ParsedItems("".join(part["text"] for part in parts if part.get("text") and not part.get("thought")), calls)


def _joined(content: str | Iterable[dict[str, Any]] | None) -> str:
    """Return the text of a content: a text, or a list of parts some of which are text."""
    if content is None or isinstance(content, str):
        return content or ""
    words = (part.get("text") or part.get("refusal") for part in content)
    return "".join(text for text in words if isinstance(text, str))


def _call(id: Any, name: Any, arguments: Any) -> Call:
    """Return a call. Some servers give its arguments as a text, others as a value."""
    if not isinstance(name, str):
        raise TypeError(name)
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode({} if arguments is None else clean_value(arguments)).decode()
    return Call(id=str(id or ""), name=name, arguments=arguments)


def _openai_usage(usage: dict[str, Any] | None, given: str, made: str, details: str) -> Usage | None:
    if not usage:
        return None
    more = usage.get(details) or {}
    return Usage(
        input_tokens=_count(usage, given),
        output_tokens=_count(usage, made),
        cache_read_tokens=_count(more, "cached_tokens"),
        cache_write_tokens=_count(more, "cache_write_tokens"),
    )


def _count(usage: dict[str, Any], *names: str) -> int:
    """Return the sum of some figures; one that is not a number counts as 0."""
    total = 0
    for number in map(usage.get, names):
        if isinstance(number, int | float) and 0 < number < MOST:
            total += int(number)
    return total


def _without_nulls(items: Items | None) -> Items:
    """Return the items as they can be sent back: providers return null fields that they do not accept as null."""
    return [{name: value for name, value in item.items() if value is not None} for item in items or ()]
