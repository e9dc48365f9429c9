"""What a task was started with and keeps to its end, so that a resume renders the same window on another day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from orihon.coerce import deep
from orihon.context import wire
from orihon.context.frame import Budget, Policy
from orihon.context.recall import RECALL, UNFOLD
from orihon.context.tree import Limits
from orihon.errors import BudgetTooSmall, UsageError
from orihon.ingest import shown
from orihon.settings.schema import Count, Settings, Share, Whole
from orihon.tokens import Counter, counter

EXTRACTIVE = "extractive"
CALLABLE = "callable"

Summariser = Callable[[str], str]
Schema = dict[str, Any]


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one task, as its metadata keeps them."""

    llm_provider: str = ""
    model: str = ""
    context_length: Count = 128_000
    compression_threshold: Share = 0.7
    max_memory_messages: Count = 20
    reserved_output: Whole = 4096
    tokens: str = "estimate"
    window: Literal["fold", "importance", "plain"] = "fold"
    fold_at: Share = 0.97
    fold_to: Share = 0.52
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

    @property
    def policy(self) -> Policy:
        """How it is chosen what to show."""
        return Policy(
            name=self.window,
            max_messages=self.max_messages,
            max_data_chars=self.max_data_chars,
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
        """The caller's tools, with `unfold` and `recall` beside them unless the caller has his own of that name."""
        if self.tools is None:
            return []
        names = {name_of(schema) for schema in self.tools}
        return [*self.tools, *(schema for schema in (UNFOLD, RECALL) if name_of(schema) not in names)]

    @property
    def ours(self) -> frozenset[str]:
        """The names of the tools that the engine answers itself."""
        taken = {name_of(schema) for schema in self.tools or ()}
        return frozenset(name_of(schema) for schema in self.schemas) - taken

    def budget(self, scale: float = 1.0, schema_tokens: int = 0, beside: int = 0) -> Budget:
        """What the window may cost, where the provider counts `scale` times what we do."""
        budget = Budget(
            context_length=int(self.context_length / scale) - beside,
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


def name_of(schema: Schema) -> str:
    """The name of a tool, in either of the two shapes that people write."""
    function = schema.get("function", schema)
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def config_from_settings(settings: Settings, **given: Any) -> TaskConfig:
    """What a new task keeps: what was given, else what the settings say; nonsense is refused at once."""
    storage, model = settings.context_storage, settings.llm.chosen
    values: dict[str, Any] = {
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
    values |= {name: value for name, value in plain_options(given).items() if value is not None}
    try:
        config = msgspec.convert(values, TaskConfig)
    except msgspec.ValidationError as error:
        hint = "docs/settings.md says what each of them may be."
        raise UsageError(f"A task cannot be started so: {error}.", hint=hint) from error
    _check(config)
    return config


def plain_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as plain values."""
    return {name: deep(value, "The tools" if name == "tools" else name) for name, value in given.items()}


def check_names(given: dict[str, Any]) -> None:
    """Refuse an option that no task has."""
    names = [name for name in TaskConfig.__struct_fields__ if name != "inherited_from"]  # that is found, not given
    wrong = sorted(given.keys() - set(names))
    if wrong:
        raise UsageError(f"Unknown option {wrong[0]!a} of a task.", hint=f"There are {', '.join(names)}.")


def changed(config: TaskConfig, changes: dict[str, Any]) -> TaskConfig:
    """What a task keeps from now on; nonsense is refused."""
    try:
        made = msgspec.convert(msgspec.to_builtins(config) | plain_options(changes), TaskConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"A task cannot go on so: {error}.", hint="docs/settings.md says what may be.") from error
    _check(made)
    return made


def config_from_metadata(config: dict[str, Any]) -> TaskConfig:
    """What the metadata of a task says; a field that another version wrote otherwise has its default."""
    known = {name: config[name] for name in TaskConfig.__struct_fields__ if name in config}
    try:
        return msgspec.convert(known, TaskConfig)
    except msgspec.ValidationError:
        usable = {name: value for name, value in known.items() if _fits(name, value)}
        return msgspec.convert(usable, TaskConfig)


def _fits(name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, TaskConfig)
    except msgspec.ValidationError:
        return False
    return True


def schema_tokens(config: TaskConfig, count: Counter) -> int:
    """What the tools take of every request, in the format where they take the most."""
    named = [schema for schema in config.schemas if name_of(schema)]
    return max(count.tools(wire.tools(named, api)) for api in wire.APIS)


def _check(config: TaskConfig) -> None:
    count = counter(config.tokens)
    unnamed = [schema for schema in config.tools or () if not name_of(schema)]
    if unnamed:
        hint = 'Describe it as {"type": "function", "function": {"name": …, "parameters": {…}}}.'
        raise UsageError(f"A tool has no name: {shown(str(unnamed[0]))[:80]}.", hint=hint)
    if config.fold_to >= config.fold_at:
        sentence = f"fold_to ({config.fold_to}) must be less than fold_at ({config.fold_at})."
        raise UsageError(sentence, hint="The defaults are 0.52 and 0.97.")
    try:
        schemas = schema_tokens(config, count)
    except TypeError as error:
        raise UsageError(f"The tools cannot be sent: {error}.", hint="Describe them in values of JSON.") from error
    if config.context_length - config.reserved_output - schemas <= 0:
        raise UsageError(
            f"A window of {config.context_length:,} tokens has no room for messages: {config.reserved_output:,} are "
            f"reserved for the reply and the tools take {schemas:,}.",
            hint="Give a larger context_length, a smaller reserved_output, or fewer tools.",
        )
