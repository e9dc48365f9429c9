"""The stored records: one struct for each kind of line in a log, a list or a table.

Records are frozen and do no I/O; `codec` encodes and decodes them. Fields are written with the names of version 3.0 of
the format, in this order; the names of version 2.0 can also be read. `unknown` holds fields that this version does not
know, so that they are kept when the record is written again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orihon.task_key import SESSION, TaskKey

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal["pending", "running", "paused", "completed", "stopped", "failed"]
TIMEOUT = "timeout"  # the reason of a failure for which `state.json` has a status of its own
Activity = Literal["initializing", "processing", "compressing", "completing", ""]
SummaryKind = Literal["rolling", "final", "tangent"]
Archived = Literal["", "gzip", "going", "stub"]  # complete, complete and gzipped, being reduced to a stub, a stub
PlanKind = Literal["plan", "revision", "reflection", "verification", "replan_decision"]

MOST = 2**53 - 1  # the largest integer that every JSON parser and every database represents exactly
Seq = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Whole = Annotated[int, Meta(ge=-MOST, le=MOST)]


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all records: frozen, without defaults on disk, and strict, so that the codec detects unknown fields."""

    unknown: dict[str, Any] = {}


class Blob(Record, frozen=True, kw_only=True):
    """A reference to bytes that are too large for a line."""

    sha256: str
    size_bytes: Count


class Part(Record, frozen=True, kw_only=True):
    """One part of a message: text, an image or a file. Other types are stored unchanged."""

    type: str
    text: str | None = None
    media_type: str | None = None
    name: str | None = None
    data: str | None = None  # base64, until a store moves it to a blob
    url: str | None = None
    blob: Blob | None = None
    width: Whole | None = None
    height: Whole | None = None


class Call(Record, frozen=True, kw_only=True):
    """A tool call by the model. `arguments` is the model's JSON text, byte for byte."""

    id: str
    name: str
    arguments: str = "{}"
    blob: Blob | None = None  # the full arguments, if they are too large for a line
    masked: bool = False  # the stored arguments differ from the executed ones and must not be executed again


class Usage(Record, frozen=True, kw_only=True):
    """The tokens of a request as the provider reports them. Input tokens include those from its cache."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0


class Sent(Record, frozen=True, kw_only=True):
    """What the window was made of that a reply answers, and what was in it."""

    after: Count  # its newest message
    event: Count  # the newest event that counted for it
    limit: Count
    tokens: Count
    sources: dict[str, Count] = {}  # tokens by source
    reasons: list[str] = []  # why it was folded just then


class Native(Record, frozen=True, kw_only=True):
    """The provider's own payload (reasoning, signatures), valid only for the API and the model that returned it."""

    api: str
    model: str = ""
    items: list[Any] = []


class Raw(Record, frozen=True, kw_only=True):
    """A message as the caller's framework holds it: any JSON value, kept for the framework and never rendered."""

    value: Any = None
    blob: Blob | None = None  # the JSON of the value, if it is too large for a line


class Issue(Record, frozen=True, kw_only=True):
    """What a task is to do, field by field, as its source gave it. The first message is rendered from these fields."""

    title: str = ""
    body: str = ""
    latest: str = ""  # the newest comment, which is the request; empty if there are no comments
    author: str = ""
    people: list[str] = []  # the others who wrote comments or are assigned
    labels: list[str] = []
    language: str = ""  # `ja` or `en`

    @property
    def text(self) -> str:
        """What users wrote: the title, the body and the latest request."""
        return "\n\n".join(part for part in (self.title, self.body, self.latest) if part.strip())


class Metadata(Record, frozen=True, kw_only=True):
    """The parameters that a task was started with. Written once."""

    uuid: str
    task_key: TaskKey
    created_at: str = ""
    process_id: Whole | None = None
    hostname: str | None = None
    config: dict[str, Any] = {}
    user: str | None = None
    format: Whole = 0  # 0: written by a program of versions 2.0 or 3.0 of the format, which did not say


class Message(Record, frozen=True, kw_only=True):
    """One line of the log."""

    seq: Seq
    role: Role
    tool_name: str | None = None
    tool_call_id: str | None = None
    content: str | list[Part]
    tool_calls: list[Call] = []
    is_error: bool = False
    blob: Blob | None = None  # the full text, if `content` is only its beginning
    native: Native | None = None
    raw: Raw | None = None
    model: str | None = None
    usage: Usage | None = None
    window: Sent | None = None  # of a reply: the window that was sent
    importance: Annotated[float, Meta(ge=0, le=1)] | None = None  # when it was added, if the phase of the task counted
    key: str | None = None
    issue: Issue | None = None  # the fields that the content of a first message was rendered from
    cleaned: bool = False
    masked: bool = False
    timestamp: str
    tokens: Count

    @property
    def text(self) -> str:
        """The text of the message, or of all its parts."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if part.text)


class Summary(Record, frozen=True, kw_only=True):
    """A text that replaces a range of the log in the window."""

    id: Seq
    start_seq: Seq
    end_seq: Seq
    summary: str
    original_tokens: Count
    summary_tokens: Count
    ratio: float
    retention: Annotated[float, Meta(ge=0, le=1)] | None = None  # of the names that its messages used again
    kind: SummaryKind = "rolling"
    ranges: list[tuple[Whole, Whole]] = []
    model: str | None = None
    timestamp: str


class Fold(Record, frozen=True, kw_only=True):
    """The text that the window shows instead of a message. The log keeps the full message."""

    id: Seq
    seq: Seq
    text: str
    arguments: dict[str, str] = {}  # by call id, for the calls whose arguments were shortened
    tokens: Count
    timestamp: str


class ToolCall(Record, frozen=True, kw_only=True):
    """One tool run: arguments, result and duration."""

    seq: Seq
    tool: str
    args: Any
    result: Any = None
    status: Literal["success", "error"]
    error: str | None = None
    duration_ms: Count
    timestamp: str
    call_id: str | None = None
    message_seq: Whole | None = None  # the message with the full result, if `result` is only its beginning


class Event(Record, frozen=True, kw_only=True):
    """A change of the visible messages, after the message `after`."""

    id: Seq
    after: Count
    type: str
    data: dict[str, Any] = {}
    timestamp: str


class PlanEntry(Record, frozen=True, kw_only=True):
    """One step in the history of a plan."""

    id: Seq
    type: PlanKind
    task_uuid: str
    data: dict[str, Any]
    timestamp: str


class TaskRow(Record, frozen=True, kw_only=True):
    """One task in lists and queries: the columns of `tasks.db`, in their order."""

    uuid: str
    task_source: str
    owner: str = ""
    repo: str = ""
    task_type: str
    task_id: str
    status: Status
    created_at: str
    started_at: str | None = None
    completed_at: str | None = None
    process_id: Whole | None = None
    hostname: str | None = None
    llm_provider: str | None = None
    model: str | None = None
    context_length: Whole | None = None
    llm_call_count: Count = 0
    tool_call_count: Count = 0
    total_tokens: Count = 0
    compression_count: Count = 0
    error_message: str | None = None
    user: str | None = None
    # columns for leases, the queue, inheritance and the state file, in addition to those of the format
    project_id: Whole | None = None
    task_key: str
    activity: Activity = ""
    updated_at: str | None = None
    last_activity: str | None = None
    current_context_tokens: Count = 0
    reason: str | None = None
    resume_count: Count = 0
    attempts: Count = 0
    priority: Whole = 0
    kept: bool = False
    archived: Archived = ""  # the state of the directory after retention
    linked_key: str | None = None  # the issue that became this pull request, or the other way round
    final_summary: str | None = None
    handoff: str | None = None  # JSON: plan and tools for a later run, if the directory is deleted
    fence: Count = 0
    lease_owner: str | None = None
    heartbeat_at: str | None = None
    # totals as of the row's last change, so that many tasks can be summed up without opening them
    message_count: Count = 0
    size_bytes: Count = 0  # of its records and their blobs
    packed_bytes: Count | None = None  # size on disk after retention gzipped it
    summary_count: Count = 0
    summary_failures: Count = 0  # summaries for which the extractive summariser was the fallback
    summarised_tokens: Count = 0  # tokens of the summarised messages
    summary_tokens: Count = 0  # tokens of the summaries
    retention_count: Count = 0  # summaries whose retention was measured
    retention_sum: Count = 0  # their retention, in ten-thousandths, which add up exactly

    @classmethod
    def new(cls, metadata: Metadata, status: Status, *, fence: int = 0) -> TaskRow:
        """Return the row of a new task."""
        key, config = metadata.task_key, metadata.config
        return cls(
            uuid=metadata.uuid,
            task_source=key.task_source,
            owner=key.owner,
            repo=key.repo,
            task_type=key.task_type,
            task_id=key.task_id,
            project_id=key.project_id,
            task_key=str(key),
            status=status,
            created_at=metadata.created_at,
            started_at=metadata.created_at if status == "running" else None,
            process_id=metadata.process_id,
            hostname=metadata.hostname,
            llm_provider=config.get("llm_provider"),
            model=config.get("model"),
            context_length=config.get("context_length"),
            user=metadata.user,
            activity="initializing",
            updated_at=metadata.created_at,
            fence=fence,
        )

    @property
    def is_session(self) -> bool:
        """Whether the task is a session, which stays open while no process holds it."""
        return self.task_source == SESSION

    @property
    def key(self) -> TaskKey:
        """The key of the task."""
        return TaskKey(
            task_source=self.task_source,
            owner=self.owner,
            repo=self.repo,
            task_type=self.task_type,
            task_id=self.task_id,
            project_id=self.project_id,
        )
