"""The values that everything else is made of: what one line of a log, a list or a table says.

Each value is frozen and knows nothing of disks, clocks or networks; `codec` turns it into a JSON line and back.
The written names are those of version 3.0 of the format, in this order; the names of version 2.0 are read as well.
`unknown` holds the fields that this version has never heard of, so that they are still there when the value is
written again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from orihon.task_key import TaskKey

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal["pending", "running", "paused", "completed", "stopped", "failed"]
Activity = Literal["initializing", "processing", "compressing", "completing", ""]
SummaryKind = Literal["rolling", "final", "tangent"]
Archived = Literal["", "gzip", "going", "stub"]  # whole, whole and compressed, on the way to a stub, only that
PlanKind = Literal["plan", "revision", "reflection", "verification", "replan_decision"]

MOST = 2**53 - 1  # the largest number that every reader of JSON and every database keeps
Seq = Annotated[int, Meta(ge=1, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Whole = Annotated[int, Meta(ge=-MOST, le=MOST)]


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all of them share: frozen, small on disk, and strict, so that the codec notices what it does not know."""

    unknown: dict[str, Any] = {}


class Blob(Record, frozen=True, kw_only=True):
    """Where bytes live that are too large for a line."""

    sha256: str
    size_bytes: Count


class Part(Record, frozen=True, kw_only=True):
    """One piece of a message: text, an image or a file. Other types are kept as they came."""

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
    """A tool call that the model asked for; the arguments are its own JSON text, byte for byte."""

    id: str
    name: str
    arguments: str = "{}"
    blob: Blob | None = None  # the whole arguments, when they are too large for a line
    masked: bool = False  # the stored arguments are not those that ran; they are never run again


class Usage(Record, frozen=True, kw_only=True):
    """What the provider says a request cost; input includes what came from its cache."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0


class Native(Record, frozen=True, kw_only=True):
    """The provider's own payload (reasoning, signatures), valid only for the API and the model that made it."""

    api: str
    model: str = ""
    items: list[Any] = []


class Metadata(Record, frozen=True, kw_only=True):
    """What a task was started with; written once."""

    uuid: str
    task_key: TaskKey
    created_at: str = ""
    process_id: Whole | None = None
    hostname: str | None = None
    config: dict[str, Any] = {}
    user: str | None = None
    format: Whole


class Message(Record, frozen=True, kw_only=True):
    """One line of the log."""

    seq: Seq
    role: Role
    tool_name: str | None = None
    tool_call_id: str | None = None
    content: str | list[Part]
    tool_calls: list[Call] = []
    is_error: bool = False
    blob: Blob | None = None  # the whole text, when `content` is only its beginning
    native: Native | None = None
    model: str | None = None
    usage: Usage | None = None
    key: str | None = None
    cleaned: bool = False
    masked: bool = False
    timestamp: str
    tokens: Count

    @property
    def text(self) -> str:
        """The words of the message, whatever shape its content has."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if part.text)


class Summary(Record, frozen=True, kw_only=True):
    """Text that stands for a range of the log."""

    id: Seq
    start_seq: Seq
    end_seq: Seq
    summary: str
    original_tokens: Count
    summary_tokens: Count
    ratio: float
    kind: SummaryKind = "rolling"
    ranges: list[tuple[Whole, Whole]] = []
    model: str | None = None
    timestamp: str


class Fold(Record, frozen=True, kw_only=True):
    """What the window shows instead of a message; the whole stays in the log."""

    id: Seq
    seq: Seq
    text: str
    arguments: dict[str, str] = {}  # by call id, for the calls whose arguments were shortened
    tokens: Count
    timestamp: str


class ToolCall(Record, frozen=True, kw_only=True):
    """One tool run: what went in, what came out, how long it took."""

    seq: Seq
    tool: str
    args: Any
    result: Any = None
    status: Literal["success", "error"]
    error: str | None = None
    duration_ms: Count
    timestamp: str
    call_id: str | None = None
    message_seq: Whole | None = None  # where the whole result stands, when `result` is only its beginning


class Event(Record, frozen=True, kw_only=True):
    """A change of what is visible, after the message `after`."""

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
    """One task as lists and queries see it: the columns of `tasks.db`, in their order."""

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
    # what leases, the queue, inheritance and the readable state need beside the columns of the format
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
    archived: Archived = ""  # what retention has left of the directory
    linked_key: str | None = None  # the issue that became this pull request, or the other way round
    final_summary: str | None = None
    handoff: str | None = None  # JSON: what a later run wants to know of plan and tools when the directory is gone
    fence: Count = 0
    lease_owner: str | None = None
    heartbeat_at: str | None = None
    # what is counted, so that many tasks can be summed up without opening one; as of the row's last change
    message_count: Count = 0
    size_bytes: Count = 0  # of its records and their blobs
    packed_bytes: Count | None = None  # the same on disk, once retention has compressed it
    summary_count: Count = 0
    summary_failures: Count = 0  # summaries that the extractive one had to stand in for
    summarised_tokens: Count = 0  # what the summaries stand for
    summary_tokens: Count = 0  # what they cost

    @classmethod
    def new(cls, metadata: Metadata, status: Status, *, fence: int = 0) -> TaskRow:
        """Return the row of a task that was just created."""
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
    def key(self) -> TaskKey:
        """What the task works on."""
        return TaskKey(
            task_source=self.task_source,
            owner=self.owner,
            repo=self.repo,
            task_type=self.task_type,
            task_id=self.task_id,
            project_id=self.project_id,
        )
