"""How providers say that a request is longer than the model's window. Few have a code for it; most have a sentence."""

from __future__ import annotations

import re

_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"}
)

_SENTENCES = re.compile(
    r"""
      context_length_exceeded                               # OpenAI, and gateways that pass its code on as text
    | maximum\ context\ length                              # OpenAI, vLLM, OpenRouter, Mistral
    | exceeds?\ the\ context\ (?:window|length)             # OpenAI Responses, Ollama
    | exceed(?:s|ed)?\ (?:the\ )?max(?:imum)?\ context      # Ollama
    | prompt\ (?:is\ )?too\ long                            # Anthropic, Ollama
    | exceed\ context\ limit                                # Anthropic: input length and `max_tokens`
    | exceeds\ the\ maximum\ (?:allowed\ )?(?:size|number\ of\ bytes)   # Anthropic: 413
    | longer\ than\ the\ maximum\ model\ length             # vLLM
    | max_tokens\ must\ be\ at\ least\ 1,\ got\ -           # vLLM: what the prompt left for the reply
    | available\ context\ size                              # llama.cpp
    | exceed\ context\ window                               # llama-cpp-python
    | tokens\ to\ keep\ from\ the\ initial\ prompt          # LM Studio
    | trying\ to\ keep\ the\ first\ \d+\ tokens             # LM Studio
    | n_keep\b.*n_ctx\b                                     # LM Studio
    | input\ is\ too\ long                                  # Bedrock
    | input\ token\ count\b.*\bexceeds                      # Gemini
    | reduce\ the\ length\ of\ (?:the\ |your\ )?(?:messages|prompt|input)   # Groq and others
    | request\ too\ large\b.*\btokens\ must\ be\ reduced    # OpenAI: one request above the limit of a minute
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def is_overflow(words: str, *codes: str) -> bool:
    """Whether these are the words, or one of these the code, of a request that is too long."""
    return not _CODES.isdisjoint(codes) or _SENTENCES.search(words) is not None
