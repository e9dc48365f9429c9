"""Document 002, sections 4 to 6: a task, its messages, summaries and tool runs, and the compressor.

    manager = TaskContextManager(task_key, config)
    messages = manager.get_message_store()
    messages.add_message("user", "Fix the authentication bug")
    manager.complete()

Tokens are counted as the document says: four characters are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

import msgspec

from orihon import codec
from orihon.context import wire
from orihon.context.ranges import upto
from orihon.context.repair import repair
from orihon.engine import Engine, open_engine
from orihon.errors import UsageError
from orihon.records import Message, Summary, ToolCall
from orihon.settings.load import load, override
from orihon.settings.schema import Settings
from orihon.task.task import Task
from orihon.task_key import TaskKey

Config = Settings | Mapping[str, Any] | None
Client = Callable[[str], str] | Any

WINDOW_SHARE = 0.7  # of the context length, for the messages of one request
KEPT_MESSAGES = 5  # the newest, which no summary covers
PROMPT = """以下の会話履歴を要約してください。
{messages}

要約には以下を含めてください:
1. 重要な決定事項
2. 実施したコード変更
3. 発生した問題とその解決
4. 残存タスク

元の30-40%の長さを目標としてください。
要約のみを出力してください。"""

_open_tasks: WeakValueDictionary[str, Task] = WeakValueDictionary()


def to_settings(config: Config) -> Settings:
    """Return settings from a mapping like `config.yaml`; without one, those of `./config.yaml`."""
    if isinstance(config, Settings):
        return config
    return load() if config is None else override(Settings(), dict(config), where="config", variables=True)[0]


class TaskContextManager:
    """One task: its directory, its row in `tasks.db`, and its stores."""

    def __init__(self, task_key: TaskKey | str | Mapping[str, Any], config: Config = None) -> None:
        settings = to_settings(config)
        key = TaskKey(**task_key) if isinstance(task_key, Mapping) else task_key
        self._engine = open_engine(settings=settings)
        self.task = self._engine.start(key, window="plain", tokens="chars4")
        self.uuid = self.task.uuid
        self.context_dir = Path(settings.store_url) / "running" / self.uuid
        self._compressions = 0
        _open_tasks[self.uuid] = self.task

    def update_status(self, status: str, error_message: str | None = None) -> None:
        """Change the status in `tasks.db`: running, completed, failed, stopped or paused."""
        if error_message is not None and status != "failed":
            self.task.writer.update(error_message=error_message)
        if status == "running":
            return
        ends: dict[str, Callable[[], None]] = {
            "completed": self.task.complete,
            "failed": lambda: self.task.fail(error_message or ""),
            "stopped": self.task.stop,
            "paused": self.task.pause,
        }
        if status not in ends:
            raise UsageError(f"There is no status {status!a:.40}.", hint=f"Use running, {', '.join(ends)}.")
        ends[status]()

    def update_statistics(
        self, llm_calls: int = 0, tool_calls: int = 0, tokens: int = 0, compressions: int = 0
    ) -> None:
        """Add to the counters in `tasks.db`. A compression that was counted when it was made is not counted again."""
        self._compressions += compressions
        self.task.writer.update(
            add={
                "llm_call_count": llm_calls,
                "tool_call_count": tool_calls,
                "total_tokens": tokens,
                "compression_count": max(0, self._compressions - self.task.row.compression_count),
            }
        )

    def complete(self) -> None:
        """End the task well: its directory moves to `completed/`."""
        self.task.complete()
        self._engine.close()

    def fail(self, error_message: str) -> None:
        """End the task with an error: its directory moves to `completed/`."""
        self.task.fail(error_message)
        self._engine.close()

    def get_message_store(self) -> MessageStore:
        """Return the messages of the task."""
        return MessageStore(self.context_dir, self._engine.settings)

    def get_summary_store(self) -> SummaryStore:
        """Return the summaries of the task."""
        return SummaryStore(self.context_dir)

    def get_tool_store(self) -> ToolStore:
        """Return the tool runs of the task."""
        return ToolStore(self.context_dir)


class _Part:
    """A part of the task whose directory is given. A task that no object of this process holds is resumed."""

    def __init__(self, context_dir: str | Path) -> None:
        self.context_dir = Path(context_dir)
        self.task = _open_tasks.get(self.context_dir.name) or self._resume()

    def _resume(self) -> Task:
        self._engine: Engine = open_engine(self.context_dir.parent.parent)
        task = self._engine.resume(self.context_dir.name)
        _open_tasks[task.uuid] = task
        return task


class MessageStore(_Part):
    """The messages of a task."""

    def __init__(self, context_dir: str | Path, config: Config = None) -> None:
        super().__init__(context_dir)
        settings = to_settings(config)
        self.max_memory_messages = settings.context_storage.max_memory_messages
        self.context_length = self.task.config.context_length
        self._recent: list[dict[str, Any]] = []
        self._marked: list[tuple[int, int]] = []

    def add_message(self, role: str, content: str, tool_name: str | None = None) -> int:
        """Append a message and return its number."""
        return self.task.add(role, content, tool_name=tool_name)

    def get_messages_for_llm(self, summary_store: SummaryStore | None = None) -> list[dict[str, Any]]:
        """Return the system prompt, the newest summary, and the messages after it that fit into 70 % of the context."""
        log = self.task.log
        head = [message for message in log.read(1, 1) if message.role == "system"]
        latest = (summary_store or SummaryStore(self.context_dir)).get_latest_summary()
        if latest is not None:
            text = f"これまでの要約: {latest['summary']}"
            head.append(Message(seq=0, role="user", content=text, timestamp="", tokens=latest["summary_tokens"]))
        room = int(self.context_length * WINDOW_SHARE) - sum(message.tokens for message in head)
        newest: list[Message] = []
        for message in self._unsummarised():
            if (room := room - message.tokens) < 0:
                break
            newest.append(log.load_all(message))
        messages = repair([*head, *newest[::-1]])  # a result whose call was not stored is told by the user
        return wire.openai(messages, model=self.task.config.model, load=log.load)

    def load_recent_messages(self, n: int) -> list[dict[str, Any]]:
        """Read the newest `n` messages into memory, and return them."""
        last = self.task.log.last
        self._recent = [msgspec.to_builtins(message) for message in self.task.log.read(max(1, last - n + 1), last)]
        return self._recent

    def mark_as_summarized(self, start_seq: int, end_seq: int) -> None:
        """Count these messages as summarised, as long as this object lives. The file does not change."""
        self._marked.append((start_seq, end_seq))

    def get_unsummarized_token_count(self) -> int:
        """Return the tokens of the messages that no summary covers."""
        return sum(message.tokens for message in self._unsummarised())

    def count_messages(self) -> int:
        """Return the number of messages."""
        return self.task.log.last

    def _unsummarised(self) -> list[Message]:
        """Return the messages that no summary covers, the newest first, without the system prompt."""
        log = self.task.log
        return [
            message
            for message in log.backwards(log.uncovered)
            if (message.seq > 1 or message.role != "system")
            and not any(first <= message.seq <= last for first, last in self._marked)
        ]


class SummaryStore(_Part):
    """The summaries of a task."""

    def add_summary(
        self, start_seq: int, end_seq: int, summary_text: str, original_tokens: int, summary_tokens: int
    ) -> int:
        """Append a summary, which from now on stands for the messages up to `end_seq`, and return its id."""
        writer = self.task.writer
        with writer.lock:
            ranges = upto(writer.log.view.state.ranges, min(end_seq, writer.log.last))
            number = writer.append(
                Summary(
                    id=0,
                    start_seq=start_seq,
                    end_seq=end_seq,
                    summary=summary_text,
                    original_tokens=original_tokens,
                    summary_tokens=summary_tokens,
                    ratio=round(summary_tokens / original_tokens, 3) if original_tokens else 0.0,
                    ranges=list(ranges),
                    timestamp="",
                )
            )
            writer.event("summary", id=number, ranges=ranges, kept=())
        return number

    def get_latest_summary(self) -> dict[str, Any] | None:
        """Return the newest summary; None if there is none."""
        newest = next(self.task.writer.lease.store.read(self.task.uuid, Summary, first=-1), None)
        return None if newest is None else cast("dict[str, Any]", msgspec.to_builtins(newest))

    def count_summaries(self) -> int:
        """Return the number of summaries."""
        return self.task.writer.lease.last(Summary)


class ToolStore(_Part):
    """The tool runs of a task."""

    def add_tool_call(  # noqa: PLR0917 - the document's arguments
        self,
        tool_name: str,
        args: Any,
        result: Any,
        status: Literal["success", "error"],
        duration_ms: float,
        error: str | None = None,
    ) -> int:
        """Append a tool run and return its number."""
        if status not in {"success", "error"}:
            raise UsageError(f"A tool run cannot have the status {status!a:.40}.", hint="Use success or error.")
        with self.task.writer.lock:
            return self.task.writer.append(
                ToolCall(
                    seq=0,
                    tool=tool_name,
                    args=codec.clean_value(args),
                    result=codec.clean_value(result),
                    status=status,
                    error=error,
                    duration_ms=max(0, round(duration_ms)),
                    timestamp="",
                )
            )

    def count_tool_calls(self) -> int:
        """Return the number of tool runs."""
        return self.task.writer.lease.last(ToolCall)


class ContextCompressor:
    """Replaces older messages with a summary that the model writes.

    `llm_client` is a callable from a prompt to a text, or an OpenAI client.
    """

    def __init__(
        self, message_store: MessageStore, summary_store: SummaryStore, llm_client: Client, config: Config = None
    ) -> None:
        settings = to_settings(config)
        self.message_store, self.summary_store, self.llm_client = message_store, summary_store, llm_client
        self.context_length = message_store.context_length
        self.compression_threshold = settings.context_storage.compression_threshold
        self.min_messages_to_summarize = settings.context_storage.min_messages_to_summarize

    def should_compress(self) -> bool:
        """Return whether enough messages, with enough tokens, are not summarised."""
        tokens = self.message_store.get_unsummarized_token_count()
        messages = len(self.message_store._unsummarised())  # noqa: SLF001 - of this module
        return tokens > self.context_length * self.compression_threshold and messages >= self.min_messages_to_summarize

    def compress(self) -> int | None:
        """Summarise all but the newest five messages and return the id of the summary; None if there are no others."""
        covered = self.message_store._unsummarised()[KEPT_MESSAGES:][::-1]  # noqa: SLF001 - of this module
        if not covered:
            return None
        latest = self.summary_store.get_latest_summary()
        earlier = [{"role": "summary", "content": latest["summary"]}] if latest else []
        messages = [
            {"role": message.role, "content": message.text, "tool_name": message.tool_name} for message in covered
        ]
        text = self._ask(self.create_summary_prompt([*earlier, *messages])).strip()
        if not text:
            raise UsageError("The model answered with an empty summary; nothing has changed.", hint="Try again.")
        writer = self.message_store.task.writer
        original = sum(message.tokens for message in covered) + (latest["summary_tokens"] if latest else 0)
        number = self.summary_store.add_summary(
            covered[0].seq, covered[-1].seq, text, original, writer.log.counter.text(text)
        )
        self.message_store.mark_as_summarized(covered[0].seq, covered[-1].seq)
        writer.update(add={"compression_count": 1}, last_activity="compression")
        return number

    def create_summary_prompt(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt for a summary of these messages."""
        return PROMPT.format(messages="\n".join(map(_quote, messages)))

    def _ask(self, prompt: str) -> str:
        if callable(self.llm_client):
            return str(self.llm_client(prompt))
        completion = self.llm_client.chat.completions.create(
            model=self.message_store.task.config.model, messages=[{"role": "user", "content": prompt}]
        )
        return str(completion.choices[0].message.content or "")


def _quote(message: Mapping[str, Any]) -> str:
    """Return a message as the prompt shows it: `[TOOL]: github_get_file_contents -> (file content)`."""
    name = f"{message['tool_name']} -> " if message.get("tool_name") else ""
    return f"[{str(message['role']).upper()}]: {name}{message['content']}"
