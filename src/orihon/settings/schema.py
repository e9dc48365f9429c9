"""Every setting: its name, type, default and meaning, each stated once.

The structs are frozen, and their defaults are the numbers of the specification. `orihon.settings.load.load` fills them
from `config.yaml` and the environment and checks the ranges; a struct that code constructs is not checked.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from orihon.errors import SettingsError
from orihon.redaction import MASKS
from orihon.settings.section import MOST, Secret, Section


def doc(meaning: str) -> Meta:
    return Meta(description=meaning)


Share = Annotated[float, Meta(gt=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
Whole = Annotated[int, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=1, le=MOST)]
Word = Annotated[str, Meta(min_length=1)]

ALL = "all"
_KINDS = {name: frozenset({name}) for name in MASKS} | {ALL.upper(): MASKS}
_NAMES = sorted(name.lower() for name in MASKS)
MaskedKind = Annotated[
    str,
    Meta(
        pattern=f"^-?(?i:{ALL}|{'|'.join(_NAMES)})$",
        description=f"`{ALL}`, {', '.join(f'`{name}`' for name in _NAMES)}; a `-` in front excludes a kind",
    ),
]


class ContextStorage(Section, frozen=True, kw_only=True):
    """Where the history lives and when it is summarised."""

    enabled: Annotated[
        bool, doc("Store the history; `false` means the memory store, which is lost when the process ends.")
    ] = True
    base_dir: Annotated[Word, doc("The store: a directory, or a URL such as `sqlite:///contexts.db`.")] = (
        "logs/contexts"
    )
    max_memory_messages: Annotated[Count, doc("Number of newest messages of a task that are kept in memory.")] = 20
    compression_threshold: Annotated[
        Share,
        doc(
            "Share of `context_length` above which older messages are summarised. It has no effect without a "
            "summariser, except with the policy `plain`."
        ),
    ] = 0.7
    min_messages_to_summarize: Annotated[Count, doc("Fewer messages than this are not summarised.")] = 10
    keep_recent_messages: Annotated[Whole, doc("Number of newest messages that are never summarised.")] = 5
    summary_prompt: Annotated[str, doc("Prompt of the summariser; empty means the built-in prompt.")] = ""
    summariser: Annotated[
        str,
        doc(
            "Model that writes summaries, or `extractive`, which needs no model. If empty, `orihon run`, `worker`, "
            "`chat` and `compact` ask the model of the task; a program gives `summariser=`."
        ),
    ] = ""
    durability: Annotated[
        Literal["turn", "os", "message"],
        doc("When the log is synced to disk: before each window, never, or after each message."),
    ] = "turn"


class InheritedPlanning(Section, frozen=True, kw_only=True):
    """What a new plan inherits from earlier runs."""

    inherit_plans: Annotated[bool, doc("Show earlier plans.")] = True
    inherit_verifications: Annotated[bool, doc("Show earlier verifications.")] = True
    inherit_reflections: Annotated[bool, doc("Show earlier reflections.")] = True
    max_previous_plans: Annotated[Count, doc("Number of earlier runs that are used.")] = 3
    reuse_successful_patterns: Annotated[bool, doc("Prefer actions that succeeded before.")] = True


class ContextInheritance(Section, frozen=True, kw_only=True):
    """What a new task inherits from earlier runs of its key."""

    enabled: Annotated[bool, doc("Inherit from the last task with the same key.")] = True
    context_expiry_days: Annotated[Whole, doc("Older tasks are not inherited.")] = 90
    max_inherited_tokens: Annotated[Count, doc("Maximum tokens of the inherited block.")] = 8000
    across_users: Annotated[
        bool, doc("Issues and pull requests inherit from tasks of other users; local tasks never do.")
    ] = False
    planning: InheritedPlanning = InheritedPlanning()


class Provider(Section, frozen=True, kw_only=True):
    """A model provider."""

    model: Annotated[str, doc("Name of the model.")] = ""
    context_length: Annotated[Count, doc("The model's window in tokens.")] = 128_000
    base_url: Annotated[str, doc("Address of the service; empty means the provider's own.")] = ""
    api_key: Annotated[Secret | None, doc("API key; if unset, the provider's library looks for its own.")] = None


class Llm(Section, frozen=True, kw_only=True):
    """The model that works on the tasks."""

    provider: Annotated[
        Literal["openai", "ollama", "lmstudio", "anthropic"], doc("The section below that is used.")
    ] = "openai"
    function_calling: Annotated[bool, doc("Pass tools through the provider's tool interface.")] = True
    tries: Annotated[Count, doc("Maximum attempts for a request when the provider fails.")] = 6
    stall_seconds: Annotated[Positive, doc("Seconds without data after which a request fails.")] = 300.0
    total_seconds: Annotated[Positive, doc("Maximum duration of all attempts for one request.")] = 1800.0
    reply_cache: Annotated[
        str, doc("Directory of replies; a request that was answered before is not sent again. Empty means none.")
    ] = ""
    openai: Provider = Provider(model="gpt-4o")
    ollama: Provider = Provider(model="qwen3-30b", context_length=32_768, base_url="http://localhost:11434/v1")
    lmstudio: Provider = Provider(model="qwen3-30b", context_length=32_768, base_url="http://localhost:1234/v1")
    anthropic: Provider = Provider(context_length=200_000)

    @property
    def chosen(self) -> Provider:
        provider: Provider = getattr(self, self.provider)
        return provider


class ProgressComment(Section, frozen=True, kw_only=True):
    """The comment that shows the progress of a task."""

    enabled: Annotated[bool, doc("Write the comment, and edit it in place.")] = True
    max_history_entries: Annotated[Count, doc("Number of newest entries that it keeps.")] = 100


class Reflection(Section, frozen=True, kw_only=True):
    """Reflection while a plan is executed."""

    enabled: Annotated[bool, doc("Enable reflection.")] = True
    trigger_on_error: Annotated[bool, doc("Reflect when an action fails.")] = True
    trigger_interval: Annotated[Whole, doc("Reflect after this many actions; 0 means only on errors.")] = 3


class Revision(Section, frozen=True, kw_only=True):
    """Revision of a plan after a reflection."""

    max_revisions: Annotated[Whole, doc("Maximum revisions of one plan.")] = 3


class Verification(Section, frozen=True, kw_only=True):
    """Verification that the work is done."""

    enabled: Annotated[bool, doc("Check for placeholders and against the success criteria.")] = True
    max_rounds: Annotated[Count, doc("Maximum rounds of verification and additional work.")] = 2


class Replanning(Section, frozen=True, kw_only=True):
    """Limits of replanning."""

    enabled: Annotated[bool, doc("Let the model request another plan.")] = True
    min_confidence_threshold: Annotated[Share, doc("Below this confidence a new plan is not made at once.")] = 0.5
    user_confirmation_threshold: Annotated[
        Share, doc("Between this confidence and the one above the user is asked.")
    ] = 0.3
    max_clarification_requests: Annotated[Whole, doc("Maximum questions to the user.")] = 2
    max_redecomposition_attempts: Annotated[Whole, doc("Maximum repeated decompositions of the goal.")] = 3
    max_regeneration_attempts: Annotated[Whole, doc("Maximum repeated generations of the actions.")] = 3
    max_action_retries: Annotated[Whole, doc("Maximum retries of one action.")] = 3
    max_partial_replans: Annotated[Whole, doc("Maximum times that the rest of a plan is replaced.")] = 2
    max_plan_revisions: Annotated[Whole, doc("Maximum revisions after failed actions.")] = 2
    max_total_replans: Annotated[Whole, doc("Maximum of all of the above together.")] = 10
    same_trigger_max_count: Annotated[
        Count, doc("Replans of the same kind at the same step before they count as a loop.")
    ] = 2


class Planning(Section, frozen=True, kw_only=True):
    """Plans and their history."""

    enabled: Annotated[bool, doc("Plan before acting.")] = True
    max_subtasks: Annotated[Count, doc("Maximum steps of one plan.")] = 100
    progress_comment: ProgressComment = ProgressComment()
    reflection: Reflection = Reflection()
    revision: Revision = Revision()
    verification: Verification = Verification()
    replanning: Replanning = Replanning()


class PauseResume(Section, frozen=True, kw_only=True):
    """Pausing all work with a file."""

    enabled: Annotated[bool, doc("Check for the file.")] = True
    signal_file: Annotated[Word, doc("While this file exists, tasks pause.")] = "logs/contexts/pause_signal"
    check_interval: Annotated[Count, doc("Check once per this many model calls.")] = 1
    paused_task_expiry_days: Annotated[Whole, doc("Tasks that paused longer ago are not resumed automatically.")] = 30


class TaskStop(Section, frozen=True, kw_only=True):
    """Stopping a task by removing the bot from its assignees."""

    enabled: Annotated[bool, doc("Check the assignees.")] = True
    check_interval: Annotated[Count, doc("Check once per this many model calls.")] = 1
    min_check_interval_seconds: Annotated[float, Meta(ge=0), doc("Minimum time between two checks.")] = 30.0


class Forge(Section, frozen=True, kw_only=True):
    """A source of issues and pull requests."""

    owner: Annotated[str, doc("The owner of the repositories that are searched.")] = ""
    bot_name: Annotated[str, doc("The bot's user name.")] = ""
    bot_label: Annotated[Word, doc("Label that requests work.")] = "coding agent"
    processing_label: Annotated[Word, doc("Label while a task runs.")] = "coding agent processing"
    done_label: Annotated[Word, doc("Label of a completed task.")] = "coding agent done"
    paused_label: Annotated[Word, doc("Label of a paused task.")] = "coding agent paused"
    stopped_label: Annotated[Word, doc("Label of a stopped task.")] = "coding agent stopped"
    failed_label: Annotated[Word, doc("Label of a failed task.")] = "coding agent failed"
    query: Annotated[str, doc("Additional search terms, in the syntax of GitHub or GitLab.")] = ""
    base_url: Annotated[str, doc("Address of the API; empty means the public one.")] = ""
    token: Annotated[Secret | None, doc("The bot's token.")] = None


class UserConfigApi(Section, frozen=True, kw_only=True):
    """A service or a file with the settings of each user."""

    enabled: Annotated[bool, doc("Use the service or the file.")] = False
    url: Annotated[str, doc("Address of the service; `/config/PLATFORM/USER` is appended.")] = ""
    file: Annotated[str, doc("A YAML file instead of the service: settings under `PLATFORM: USER:`.")] = ""
    api_key: Annotated[Secret | None, doc("API key of the service.")] = None
    timeout_seconds: Annotated[Positive, doc("Maximum time for a response.")] = 5.0


class McpServer(Section, frozen=True, kw_only=True):
    """An MCP server: a command that is started, or a URL that is called."""

    mcp_server_name: Annotated[Word, doc("Its tools are called `{name}_{tool}`.")]
    command: Annotated[tuple[str, ...], doc("Program and arguments of a server that is started.")] = ()
    env: Annotated[
        dict[str, Secret], doc("Environment variables of the server, in addition to `PATH`, `HOME` and similar ones.")
    ] = msgspec.field(default_factory=dict)
    url: Annotated[str, doc("Address of a running server (streamable HTTP).")] = ""
    headers: Annotated[dict[str, Secret], doc("HTTP headers for the server, such as `Authorization`.")] = msgspec.field(
        default_factory=dict
    )
    timeout_seconds: Annotated[Positive, doc("Maximum time for its start and for a response.")] = 60.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")


class History(Section, frozen=True, kw_only=True):
    """Limits for messages and user interface data; names in capitals, such as `MAX_MESSAGES`, are accepted as well."""

    max_messages: Annotated[Count, doc("Maximum messages in the window of the policy `importance`.")] = 24
    max_text_chars: Annotated[Count, doc("Maximum characters of a text.")] = 1000
    max_data_chars: Annotated[Count, doc("Maximum characters of data.")] = 2000
    max_ui_nodes: Annotated[Count, doc("Maximum nodes of a tree of user interface elements.")] = 200
    max_ui_depth: Annotated[Count, doc("Maximum depth of such a tree.")] = 2
    max_ui_children: Annotated[Count, doc("Maximum children of one node.")] = 20
    max_web_elements: Annotated[Count, doc("Maximum elements of a web page.")] = 200
    max_actions: Annotated[Count, doc("Maximum completed actions in the snapshot.")] = 8


class Window(Section, frozen=True, kw_only=True):
    """The window that the model receives."""

    policy: Annotated[
        Literal["fold", "importance", "plain"],
        doc("Fold first, keep important messages, or only summarise at `compression_threshold`."),
    ] = "fold"
    reserved_output: Annotated[
        Whole | None,
        doc("Tokens of `context_length` that are reserved for the reply; by default 4096, at most an eighth of it."),
    ] = None
    tokens: Annotated[Literal["estimate", "chars4", "bytes4", "o200k", "cl100k"], doc("The token counter.")] = (
        "estimate"
    )
    snapshot: Annotated[
        Literal["prefix", "tail"], doc("Show the snapshot as of the last fold, or a current one at the end.")
    ] = "prefix"
    language: Annotated[
        Literal["auto", "ja", "en"], doc("Language of summaries; `auto` means the language of the task.")
    ] = "auto"


class Sticky(Section, frozen=True, kw_only=True):
    """Files whose text is part of every window of a conversation or a run."""

    files: Annotated[
        tuple[str, ...], doc("Paths, globs and directories that a new conversation starts with, in this order.")
    ] = ()
    instructions: Annotated[
        tuple[str, ...],
        doc("Names of files with instructions; the nearest one up to the repository's root is sticky. `[]`: none."),
    ] = ("AGENTS.md", "CLAUDE.md")
    share: Annotated[float, Meta(gt=0, le=0.75), doc("Maximum share of the window for all of them together.")] = 0.25


class Masking(Section, frozen=True, kw_only=True):
    """The secrets that are masked before anything is stored, logged, exported or sent to the model."""

    kinds: Annotated[
        tuple[MaskedKind, ...],
        doc("`[all, -email]` does not mask addresses. Secrets that were passed to the process are always masked."),
    ] = (ALL,)

    @property
    def chosen(self) -> frozenset[str] | None:
        """The masks that are applied; None means all of them."""
        named = [kind for kind in self.kinds if not kind.startswith("-")]
        excepted = [kind.removeprefix("-") for kind in self.kinds if kind.startswith("-")]
        chosen = _masks(named or [ALL] if excepted else named) - _masks(excepted)
        return None if chosen == MASKS else chosen


def _masks(kinds: list[str]) -> frozenset[str]:
    unknown = [kind for kind in kinds if kind.upper() not in _KINDS]
    if unknown:
        raise SettingsError(f"Unknown kind of secret {unknown[0]!a:.60}.", path="masking.kinds")
    return frozenset().union(*(_KINDS[kind.upper()] for kind in kinds))


class Lease(Section, frozen=True, kw_only=True):
    """The right to write one task."""

    heartbeat_seconds: Annotated[Positive, doc("Interval at which the holder renews the lease.")] = 30.0
    expiry_seconds: Annotated[
        Positive, doc("Without a heartbeat for this long, another process can take the lease.")
    ] = 60.0


class Monitor(Section, frozen=True, kw_only=True):
    """Conditions that are reported to an operator."""

    interval_seconds: Annotated[Positive, doc("Time between two checks.")] = 300.0
    long_running_hours: Annotated[Positive, doc("A task that runs longer is reported.")] = 6.0
    disk_warning_gb: Annotated[Positive, doc("A larger store causes a warning.")] = 10.0
    disk_critical_gb: Annotated[Positive, doc("A larger store is critical.")] = 50.0
    failure_rate: Annotated[Share, doc("A larger share of failed tasks causes a warning.")] = 0.1
    failure_days: Annotated[Positive, doc("Days whose ended tasks count for the failure rate.")] = 7.0
    failure_least: Annotated[Count, doc("Ended tasks below which no failure rate is judged.")] = 10
    backlog: Annotated[Whole, doc("More running and pending tasks than this cause a warning.")] = 100


class Telemetry(Section, frozen=True, kw_only=True):
    """Spans and metrics for OpenTelemetry; see [telemetry.md](telemetry.md)."""

    enabled: Annotated[
        bool, doc("`run`, `worker` and `chat` send them to `OTEL_EXPORTER_OTLP_ENDPOINT`; needs the extra `otel`.")
    ] = False


class Retention(Section, frozen=True, kw_only=True):
    """How long completed tasks are kept."""

    compress_after_days: Annotated[Whole, doc("Older tasks are gzipped.")] = 7
    emergency_after_days: Annotated[Whole, doc("Older tasks are deleted when the disk is full.")] = 14
    delete_after_days: Annotated[Whole, doc("Older tasks are deleted.")] = 30
    backup_generations: Annotated[Count, doc("Number of backups that are kept.")] = 7


class Access(Section, frozen=True, kw_only=True):
    """Which users may see which tasks, for services that act for other users; see [access.md](access.md)."""

    admins: Annotated[tuple[str, ...], doc("Users who see the tasks of all users.")] = ()
    tokens: Annotated[
        dict[str, Secret], doc("The token of each user. If any token is set, a call without a token has no access.")
    ] = msgspec.field(default_factory=dict)


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    context_storage: ContextStorage = ContextStorage()
    context_inheritance: ContextInheritance = ContextInheritance()
    llm: Llm = Llm()
    max_llm_process_num: Annotated[Count, doc("Maximum model calls of one task.")] = 1000
    system_prompt: Annotated[str, doc("Text that is added to the system prompt.")] = ""
    log_file: Annotated[str, doc("File to which the commands append their log; empty means none.")] = ""
    planning: Planning = Planning()
    fold_at: Annotated[Share, doc("Share of the window above which messages are folded.")] = 0.97
    fold_to: Annotated[Share, doc("Share of the window that folding reduces it to.")] = 0.58
    window: Window = Window()
    history: History = History()
    sticky: Sticky = Sticky()
    masking: Masking = Masking()
    lease: Lease = Lease()
    monitor: Monitor = Monitor()
    telemetry: Telemetry = Telemetry()
    retention: Retention = Retention()
    access: Access = Access()
    pause_resume: PauseResume = PauseResume()
    task_stop: TaskStop = TaskStop()
    github: Forge = Forge()
    gitlab: Forge = Forge()
    user_config_api: UserConfigApi = UserConfigApi()
    mcp_servers: Annotated[tuple[McpServer, ...], doc("MCP servers whose tools the model may use.")] = ()

    @property
    def store_url(self) -> str:
        """The store that `orihon.open` opens without a URL."""
        return self.context_storage.base_dir if self.context_storage.enabled else "memory:"
