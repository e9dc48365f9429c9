"""One chat session: a user, a conversation, and the model and tools that reply.

A cancelled reply keeps the part that was received. Errors are shown and kept in the transcript, and the session goes
on. Leaving the session in any way pauses the conversation. Reading lines and slash commands is the job of `commands`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from orihon.agent.loop import Limits, Loop, Step, compute_cost
from orihon.agent.models import RESTART_NOTICE, Model, get_model_name
from orihon.agent.queue import Job
from orihon.agent.run_setup import RunSetup
from orihon.agent.user_settings import fetch_bounded
from orihon.chat import registry
from orihon.chat.conversation import USAGE_FIELDS, Conversation
from orihon.chat.files import ConversationFiles
from orihon.chat.i18n import Texts
from orihon.chat.terminal.ui import ChatUI
from orihon.coerce import decode_json
from orihon.engine import Engine
from orihon.errors import ContextError, OrihonError, StoreError, UsageError
from orihon.records import Usage
from orihon.settings.schema import Provider, Settings
from orihon.settings.section import Secret
from orihon.terminal import shorten

MAX_LINE_CHARS = 160
REMINDER_ENTRIES = 6  # that a resumed conversation shows


class ChatSession:
    """A conversation with a user interface, and the model and tools of a setup."""

    def __init__(self, conversation: Conversation, setup: RunSetup, ui: ChatUI, texts: Texts) -> None:
        self.setup, self.ui, self.texts = setup, ui, texts
        self.engine, self.directory, self.user = setup.engine, conversation.workspace, setup.user
        self.exit_code = 0  # of the last error
        self._models = {setup.model.name: setup.model}
        self._received: list[str] = []
        self._last = 0  # the newest message when the model was asked
        self._use_conversation(conversation)

    def _use_conversation(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.meter = Meter(conversation, self.texts, self.setup.job.prices)
        self.files = ConversationFiles(conversation, self.setup.tools, self.setup.settings)
        self.before_tangent = ""  # the commit of the files before the last tangent

    def begin(self) -> None:
        """Give the conversation the current tools and summariser, and show its state."""
        conversation, task, note = self.conversation, self.conversation.task, self.ui.note
        task.summariser = self.setup.find_summariser(self.model)
        task.reconfigure(tools=self.setup.tools.schemas)
        self.files.begin()
        is_new = not conversation.turn and conversation.next_message is None
        note(self.texts("started" if is_new else "resumed", name=conversation.name, model=get_model_name(task.config)))
        if is_new:
            return
        for entry in self.format_transcript(REMINDER_ENTRIES):
            note(entry)
        if conversation.next_message is not None:
            note(self.texts("sent"))
            conversation.send()
        if task.wants_reply():
            note(self.texts("unanswered"))

    def switch_to(self, conversation: Conversation) -> None:
        """Pause this conversation and go on in another one."""
        self.conversation.close()
        self._use_conversation(conversation)
        self.begin()

    def close(self) -> None:
        """Pause the conversation."""
        with defer_interrupt():
            self.conversation.close()

    def say(self, text: str) -> None:
        """Send a message and show the reply."""
        self.conversation.say(text)
        self.reply(text)

    def reply(self, prompt: str) -> None:
        """Let the model reply to the last message, then save the state of the files."""
        try:
            self._run_loop()
        except OrihonError:
            self.files.end_turn(prompt)
            raise
        self.files.end_turn(prompt)

    def _run_loop(self) -> None:
        """Ask the model and run its tool calls until it has replied, or until Ctrl-C."""
        task = self.conversation.task
        # a conversation has no limit, but a single reply that never ends is stopped
        limits = Limits(calls=task.row.llm_call_count + self.setup.settings.max_llm_process_num)
        checks = (self.files.before_reply,)
        self._received, self._last = [], self.conversation.last
        try:
            Loop(
                task, self.model, self.setup.tools, checks=checks, limits=limits, on_step=self._show_step
            ).run_until_done()
        except KeyboardInterrupt:
            with defer_interrupt():
                is_stored = self.conversation.last != self._last
                self.conversation.cancel("" if is_stored else "".join(self._received))
            self.ui.note(self.texts("cancelled"))
            if not self.ui.interactive:
                raise
        finally:
            self.ui.end_line()

    def _show_step(self, step: Step) -> None:
        match step.kind:
            case "turn":
                self._received, self._last = [], self.conversation.last
            case "text":
                self._received = [] if step.text == RESTART_NOTICE else [*self._received, step.text]
                self.ui.write_piece(step.text)
            case "call" | "note":
                self.ui.note(f"  {shorten(step.text, MAX_LINE_CHARS)}")
            case "result" if step.is_error:
                self.ui.note(f"  {self.texts('failed', text=shorten(step.text, MAX_LINE_CHARS))}")
            case "result":
                self.ui.note(f"    {shorten(step.text, MAX_LINE_CHARS)}")

    def show_error(self, error: OrihonError) -> None:
        """Show an error, and keep it in the transcript unless the user mistyped something."""
        self.exit_code = error.exit_code
        self.ui.show_error(error.message, error.hint)
        if not isinstance(error, UsageError):
            with suppress(StoreError):  # the store may be the problem
                self.conversation.add_error(error.message)

    def format_transcript(self, limit: int) -> list[str]:
        """Return the newest entries of the transcript, each with its number."""
        entries = ((f"[{seq}] ", text) for seq, text in self.conversation.read_transcript(limit))
        return [number + text.replace("\n", "\n" + " " * len(number)) for number, text in entries]

    @property
    def model(self) -> Model:
        """The model of the conversation. Leaving a tangent, or going back, may change it."""
        return self._open_model(get_model_name(self.conversation.task.config))

    def use_model(self, name: str) -> None:
        """Continue with another model and its window."""
        model = self._open_model(name)
        length = self.setup.job.context_length or find_context_length(model.name, self.setup.settings)
        provider, _, rest = model.name.partition(":")
        changes = {"llm_provider": provider, "model": model.name if provider == "scripted" else rest}
        self.conversation.task.reconfigure(**changes, **({"context_length": length} if length else {}))
        self.conversation.task.summariser = self.setup.find_summariser(model)

    def _open_model(self, name: str) -> Model:
        if name not in self._models:
            model = self.setup.open_model(name)
            name = model.name
            self._models.setdefault(name, model)
        return self._models[name]


@contextmanager
def start_session(
    engine: Engine, job: Job, ui: ChatUI, texts: Texts, *, name: str = "", user: str | None = None, mcp: bool = True
) -> Iterator[ChatSession]:
    """Start a session in a new conversation. One without a name and without messages is deleted at the end."""
    with _make_setup(engine, job, ui, user=user, mcp=mcp) as setup:
        length = job.context_length or find_context_length(setup.model.name, setup.settings)
        conversation = registry.start(
            setup.engine,
            Path(job.workspace),
            name=name,
            system=make_system_prompt(setup, texts),
            mcp_enabled=mcp,
            notify=ui.note,
            user=user,
            tools=setup.tools.schemas,
            summariser=setup.summariser,
            **setup.options | {"context_length": length},
        )
        with closing(ChatSession(conversation, setup, ui, texts)) as session:
            session.begin()
            yield session
        if not name and not conversation.turn:
            registry.delete(setup.engine, conversation.conversation_id)


@contextmanager
def resume_session(
    engine: Engine, job: Job, ui: ChatUI, texts: Texts, *, name: str = "", user: str | None = None, mcp: bool = True
) -> Iterator[ChatSession]:
    """Start a session in the conversation with this name or id, or in the most recently used one."""
    listing = registry.find(engine, Path(job.workspace), name, user=user)
    reader = engine.read(listing.uuid)
    model = job.model or get_model_name(reader.config)
    full_job = msgspec.structs.replace(job, model=model)
    with _make_setup(engine, full_job, ui, user=user or reader.row.user, mcp=mcp and listing.mcp_enabled) as setup:
        if not job.model:
            setup.advance_script(reader.row)
        conversation = registry.resume(setup.engine, listing.uuid, notify=ui.note)
        with closing(ChatSession(conversation, setup, ui, texts)) as session:
            if job.model:
                session.use_model(job.model)
            session.begin()
            yield session


def _make_setup(engine: Engine, job: Job, ui: ChatUI, *, user: str | None, mcp: bool) -> RunSetup:
    ask = ui.ask if ui.interactive else None
    return RunSetup(engine, registry.make_key(Path(job.workspace), registry.TYPE), job, user=user, ask=ask, mcp=mcp)


def make_system_prompt(setup: RunSetup, texts: Texts) -> str:
    """Return the system prompt of a conversation, followed by the one of the settings."""
    return "\n\n".join(filter(None, (texts.system_prompt, setup.settings.system_prompt.strip())))


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Ignore Ctrl-C in this process and its children until the block ends."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def show_warnings(ui: ChatUI) -> Iterator[None]:
    """Show the warnings of the log to the user, such as retries of a provider."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: ui.note(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("orihon")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


# the meter: how large the window of the model is, what fills it, and what the conversation has cost

log = logging.getLogger("orihon")

THOUSAND = 1000
TIMEOUT_SECONDS = 2.0
OK = 200
MIN_LENGTH = 256  # a smaller number is not a window
FIELDS = ("max_model_len", "context_length", "max_context_length")
PROVIDERS = ("openai", "ollama", "lmstudio")


class Meter:
    """Measures one conversation. Usage that was counted is not read again."""

    def __init__(self, conversation: Conversation, texts: Texts, prices: tuple[float, float] = (0.0, 0.0)) -> None:
        self.conversation, self.task, self.texts = conversation, conversation.task, texts
        self.limits = Limits(input_price=prices[0], output_price=prices[1])
        self._last, self._usage = 0, Usage()

    def format_line(self) -> str:
        """Return a line such as `[12% of 128k · 4 folded]`."""
        tangents, window = len(self.conversation.tangents), self.task.config.context_length
        parts = [self.texts("tangents" if tangents > 1 else "tangent", count=tangents)] if tangents else []
        try:
            report, schema_tokens, scale = self.conversation.preview_window()
        except ContextError:
            parts.append(self.texts("overfull"))
        else:
            percent = _percent(round((report.tokens + schema_tokens) * scale), window)
            short = f"{window // THOUSAND}k" if window >= 10 * THOUSAND else f"{window}"
            parts.append(self.texts("share", percent=percent, window=short))
            if folded := report.folded + report.left_out:
                parts.append(self.texts("folded", count=folded))
        return f"[{' · '.join(parts)}]"

    def format_table(self) -> Iterator[str]:
        """Return the usage of the window and of all requests, line by line."""
        yield from self._format_window()
        self._count_usage()
        usage, texts, limits = self._usage, self.texts, self.limits
        requests = self.task.row.llm_call_count
        yield texts("requests", requests=requests, input=usage.input_tokens, output=usage.output_tokens)
        if usage.cache_read_tokens:
            percent = _percent(usage.cache_read_tokens, usage.input_tokens)
            yield texts("cached", tokens=usage.cache_read_tokens, percent=percent)
        if limits.input_price or limits.output_price:
            cost = compute_cost(usage, limits)
            yield texts("cost", cost=cost, input=limits.input_price, output=limits.output_price)

    def _format_window(self) -> Iterator[str]:
        try:
            report, schema_tokens, scale = self.conversation.preview_window()
        except ContextError as error:
            yield error.message
            return
        texts, config = self.texts, self.task.config
        used, window = round((report.tokens + schema_tokens) * scale), config.context_length
        yield texts("window", used=used, window=window, percent=_percent(used, window))
        rows = {name: round(tokens * scale) for name, tokens in report.by_source.items() if tokens}
        rows[texts("schemas")] = round(schema_tokens * scale)
        rows[texts("reserved")] = config.reserved_output
        rows[texts("free")] = max(0, window - used - config.reserved_output)
        yield from (f"  {tokens:>9,}  {name}" for name, tokens in rows.items())
        yield texts("shown", whole=report.whole, folded=report.folded, left_out=report.left_out)

    def _count_usage(self) -> None:
        """Add up the reported usage; hidden replies count too, because they were paid."""
        for seq, usage in self.conversation.read_usage(self._last + 1):
            sums = {name: getattr(self._usage, name) + getattr(usage, name) for name in USAGE_FIELDS}
            self._last, self._usage = seq, msgspec.structs.replace(self._usage, **sums)


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0


def find_context_length(name: str, settings: Settings) -> int | None:
    """Return the window of a model such as `ollama:qwen3`; None for an unknown provider.

    Many servers with OpenAI's API list their models with the longest request. The smaller of this and the setting
    applies. A server that does not report it leaves the setting.
    """
    provider, _, model = name.partition(":")
    section = getattr(settings.llm, provider, None)
    if not isinstance(section, Provider):
        return None
    if not section.base_url or provider not in PROVIDERS:
        return section.context_length
    try:
        length, reason = _fetch_length(section, model), ""
    except (OrihonError, ValueError) as error:
        length, reason = None, f" ({str(error).rstrip('.')})"
    if length is None:
        log.warning("%s does not report its window%s; %d is assumed.", name, reason, section.context_length)
        return section.context_length
    return min(length, section.context_length)


def parse_length(answer: Any, model: str) -> int | None:
    """Return the window of a model in a list of models; a single model matches any name."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    models = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    for item in [item for item in models if item.get("id") == model] or (models if len(models) == 1 else []):
        meta = item.get("meta")
        lengths = [item.get(field) for field in FIELDS] + [meta.get("n_ctx_train") if isinstance(meta, dict) else None]
        valid = [length for length in lengths if isinstance(length, int) and length >= MIN_LENGTH]
        if valid:
            return valid[0]
    return None


def _fetch_length(section: Provider, model: str) -> int | None:
    key = section.api_key
    headers = {"Authorization": f"Bearer {key.reveal()}"} if isinstance(key, Secret) else {}
    url = f"{section.base_url.rstrip('/')}/models"
    status, body = fetch_bounded(url, headers, TIMEOUT_SECONDS, name="The server")
    return parse_length(decode_json(body), model) if status == OK else None
