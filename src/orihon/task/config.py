"""The settings of one task. They are stored when the task starts, so that a resume renders the same window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import msgspec

from orihon.coerce import to_json_value
from orihon.context import wire
from orihon.context.frame import Budget, Policy
from orihon.context.recall import RECALL, UNFOLD
from orihon.context.tree import Limits
from orihon.context.wire.schemas import Schema, parse_tools
from orihon.errors import BudgetTooSmall, UsageError
from orihon.ingest import mask_output
from orihon.settings.schema import Count, Settings, Share, Whole
from orihon.tokens import Counter, counter

EXTRACTIVE = "extractive"
CALLABLE = "callable"
MAX_RESERVED_OUTPUT = 4096  # by default

Summariser = Callable[[str], str]


def name_summariser(summariser: Summariser | None) -> str:
    """Return the name that is stored of a summariser: that of its model, if it says it."""
    if summariser is None:
        return EXTRACTIVE
    owner = getattr(summariser, "__self__", None)
    names = (getattr(summariser, "model", ""), getattr(owner, "name", ""), getattr(owner, "model", ""))
    return next((name for name in names if isinstance(name, str) and name), CALLABLE)


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a task was started with; `metadata.json` keeps it."""

    llm_provider: str = ""
    model: str = ""
    context_length: Count = 128_000
    compression_threshold: Share = 0.7
    max_memory_messages: Count = 20
    reserved_output: Whole = 4096
    tokens: str = "estimate"
    window: Literal["fold", "importance", "plain"] = "fold"
    fold_at: Share = 0.97
    fold_to: Share = 0.58
    min_messages_to_summarize: Count = 10
    keep_recent_messages: Whole = 5
    summariser: str = EXTRACTIVE
    summary_prompt: str = ""
    snapshot: Literal["prefix", "tail"] = "prefix"
    language: Literal["auto", "ja", "en"] = "auto"
    max_messages: Count = 24
    max_text_chars: Count = 1000
    max_data_chars: Count = 2000
    max_ui_nodes: Count = 200
    max_ui_depth: Count = 2
    max_ui_children: Count = 20
    max_web_elements: Count = 200
    max_actions: Count = 8
    tools: list[Schema] | None = None
    inherited_from: str = ""

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Return the config of a new task: its options, else the settings. Raise UsageError for nonsense."""
        values = _defaults(settings)
        values |= {name: value for name, value in plain_options(options).items() if value is not None}
        if values["reserved_output"] is None:
            values["reserved_output"] = default_reserved_output(values["context_length"])
        return cls._checked(values, "A task cannot be started like this")

    @classmethod
    def from_metadata(cls, stored: dict[str, Any]) -> Self:
        """Return the config that a task's metadata holds; a field that cannot be read has its default."""
        try:
            return cls.from_foreign_metadata(stored)
        except msgspec.ValidationError:
            return msgspec.convert({name: value for name, value in stored.items() if _is_valid(name, value)}, cls)

    @classmethod
    def from_foreign_metadata(cls, stored: dict[str, Any]) -> Self:
        """Return the config that metadata from elsewhere hold. Raise ValidationError for a field of the wrong type."""
        return msgspec.convert({name: stored[name] for name in cls.__struct_fields__ if name in stored}, cls)

    def complete_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options of the caller's in plain values, with a reserve that follows another context length."""
        options = plain_options(options)
        is_default = self.reserved_output == default_reserved_output(self.context_length)
        if is_default and "context_length" in options:
            options = {"reserved_output": default_reserved_output(options["context_length"])} | options
        return options

    def with_options(self, options: dict[str, Any]) -> Self:
        """Return the config with some options changed. Raise UsageError for nonsense."""
        return self._checked(msgspec.to_builtins(self) | options, "The task cannot continue like this")

    @classmethod
    def _checked(cls, values: dict[str, Any], problem: str) -> Self:
        try:
            config = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"{problem}: {error}.", hint="docs/settings.md describes every option.") from error
        _check(config)
        return config

    @property
    def policy(self) -> Policy:
        """How the window chooses what to show."""
        return Policy(
            name=self.window,
            max_messages=self.max_messages,
            compression_threshold=self.compression_threshold,
            ui=Limits(
                nodes=self.max_ui_nodes,
                children=self.max_ui_children,
                depth=self.max_ui_depth,
                text_chars=self.max_text_chars,
                data_chars=self.max_data_chars,
                web_elements=self.max_web_elements,
            ),
        )

    @property
    def schemas(self) -> list[Schema]:
        """The caller's tools, plus `unfold` and `recall` unless the caller has tools of these names."""
        if self.tools is None:
            return []
        names = {tool_name(schema) for schema in self.tools}
        return [*self.tools, *(schema for schema in (UNFOLD, RECALL) if tool_name(schema) not in names)]

    @property
    def engine_tools(self) -> frozenset[str]:
        """The names of the tools that the engine answers itself."""
        taken = {tool_name(schema) for schema in self.tools or ()}
        return frozenset(map(tool_name, self.schemas)) - taken

    def budget(self, scale: float = 1.0, schema_tokens: int = 0, extra_tokens: int = 0) -> Budget:
        """Return what the window may cost, where the provider counts `scale` times what we count."""
        budget = Budget(
            context_length=int(self.context_length / scale) - extra_tokens,
            reserved_output=int(self.reserved_output / scale),
            schema_tokens=schema_tokens,
            fold_at=self.fold_at,
            fold_to=self.fold_to,
        )
        if budget.limit <= 0:
            raise BudgetTooSmall(
                f"A window of {budget.context_length:,} tokens has no room for messages: {budget.reserved_output:,} "
                f"are reserved for the reply and the tools take {schema_tokens:,}.",
                needed=budget.context_length - budget.limit + 1,
                allowed=budget.context_length,
            )
        return budget


def default_reserved_output(context_length: Any) -> int:
    """Return the tokens that are left for the reply unless the caller says otherwise."""
    return min(MAX_RESERVED_OUTPUT, context_length // 8) if isinstance(context_length, int) else MAX_RESERVED_OUTPUT


def tool_name(schema: Schema) -> str:
    """Return the name of a tool, or "" if its schema has none."""
    function = schema.get("function", schema)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def plain_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with values of other libraries made plain."""
    return {
        name: parse_tools(value) if name == "tools" and value is not None else to_json_value(value, name)
        for name, value in options.items()
    }


def check_option_names(options: dict[str, Any]) -> None:
    """Raise UsageError for an option that no task has."""
    names = [name for name in TaskConfig.__struct_fields__ if name != "inherited_from"]  # the engine finds that one
    unknown = sorted(options.keys() - set(names))
    if unknown:
        raise UsageError(f"Unknown option {unknown[0]!a}.", hint=f"The options are {', '.join(names)}.")


def count_schemas(config: TaskConfig, counter: Counter) -> int:
    """Return the tokens that the tools take in every request, in the format where they take the most."""
    named = [schema for schema in config.schemas if tool_name(schema)]
    return max(counter.tools(wire.tools(named, api)) for api in wire.APIS)


def _defaults(settings: Settings) -> dict[str, Any]:
    storage, model = settings.context_storage, settings.llm.chosen
    return {
        "llm_provider": settings.llm.provider,
        "model": model.model,
        "context_length": model.context_length,
        "compression_threshold": storage.compression_threshold,
        "max_memory_messages": storage.max_memory_messages,
        "reserved_output": settings.window.reserved_output,
        "tokens": settings.window.tokens,
        "window": settings.window.policy,
        "fold_at": settings.fold_at,
        "fold_to": settings.fold_to,
        "min_messages_to_summarize": storage.min_messages_to_summarize,
        "keep_recent_messages": storage.keep_recent_messages,
        "summariser": storage.summariser or EXTRACTIVE,
        "summary_prompt": storage.summary_prompt,
        "snapshot": settings.window.snapshot,
        "language": settings.window.language,
        **msgspec.structs.asdict(settings.history),
    }


def _is_valid(name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, TaskConfig)
    except msgspec.ValidationError:
        return False
    return True


def _check(config: TaskConfig) -> None:
    unnamed = [schema for schema in config.tools or () if not tool_name(schema)]
    if unnamed:
        hint = 'Describe it as {"type": "function", "function": {"name": …, "parameters": {…}}}.'
        raise UsageError(f"A tool has no name: {mask_output(str(unnamed[0]))[:80]}.", hint=hint)
    if config.fold_to >= config.fold_at:
        raise UsageError(
            f"fold_to ({config.fold_to}) must be less than fold_at ({config.fold_at}).",
            hint="The defaults are 0.58 and 0.97.",
        )
    try:
        schemas = count_schemas(config, counter(config.tokens))
    except TypeError as error:
        raise UsageError(f"The tools cannot be sent: {error}.", hint="Describe them in JSON values.") from error
    if config.context_length - config.reserved_output - schemas <= 0:
        raise UsageError(
            f"A window of {config.context_length:,} tokens has no room for messages: {config.reserved_output:,} are "
            f"reserved for the reply and the tools take {schemas:,}.",
            hint="Give a larger context_length, a smaller reserved_output, or fewer tools.",
        )
