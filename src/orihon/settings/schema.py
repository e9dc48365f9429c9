"""Every setting: its name, type, default and meaning, each stated once.

The structs are frozen, and their defaults are the numbers of the specification. `orihon.config.load` fills them from
`config.yaml` and the environment and checks the ranges; a struct built by hand in code is not checked.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from orihon.errors import SettingsError
from orihon.redaction import MASKS
from orihon.settings.section import MOST, Secret, Section


def says(meaning: str) -> Meta:
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
        description=f"`{ALL}`, {', '.join(f'`{name}`' for name in _NAMES)}; with a `-` before it, a kind is left out",
    ),
]


class ContextStorage(Section, frozen=True, kw_only=True):
    """Where the history lives and when it is summarised."""

    enabled: Annotated[bool, says("Keep the history; `false` means the memory store, which ends with the process.")] = (
        True
    )
    base_dir: Annotated[Word, says("The store: a directory, or a URL such as `sqlite:///contexts.db`.")] = (
        "logs/contexts"
    )
    max_memory_messages: Annotated[Count, says("Newest messages of a task that are kept in memory.")] = 20
    compression_threshold: Annotated[
        Share, says("Share of `context_length` above which older messages are summarised.")
    ] = 0.7
    min_messages_to_summarize: Annotated[Count, says("Fewer messages than this are not worth a summary.")] = 10
    keep_recent_messages: Annotated[Whole, says("Newest messages that a summary leaves alone.")] = 5
    summary_prompt: Annotated[str, says("Prompt of the summariser; empty means the one that comes with Orihon.")] = ""
    summariser: Annotated[
        str, says("Model that writes summaries; empty means the extractive one, which needs none.")
    ] = ""
    durability: Annotated[
        Literal["turn", "os", "message"],
        says("When the log is synced to disk: before each window, never, or after each message."),
    ] = "turn"


class InheritedPlanning(Section, frozen=True, kw_only=True):
    """What a new plan takes from earlier runs."""

    inherit_plans: Annotated[bool, says("Show earlier plans.")] = True
    inherit_verifications: Annotated[bool, says("Show earlier verifications.")] = True
    inherit_reflections: Annotated[bool, says("Show earlier reflections.")] = True
    max_previous_plans: Annotated[Count, says("Earlier runs that are looked at.")] = 3
    reuse_successful_patterns: Annotated[bool, says("Prefer what worked before.")] = True


class ContextInheritance(Section, frozen=True, kw_only=True):
    """What a new task takes from the last one with its key."""

    enabled: Annotated[bool, says("Start where the last task with the same key ended.")] = True
    context_expiry_days: Annotated[Whole, says("Older tasks are not inherited.")] = 90
    max_inherited_tokens: Annotated[Count, says("The whole handoff is no longer than this.")] = 8000
    across_users: Annotated[bool, says("Issues and pull requests inherit whoever asked; local tasks never do.")] = True
    planning: InheritedPlanning = InheritedPlanning()


class Provider(Section, frozen=True, kw_only=True):
    """One provider of models."""

    model: Annotated[str, says("Name of the model.")] = ""
    context_length: Annotated[Count, says("The model's window in tokens.")] = 128_000
    base_url: Annotated[str, says("Address of the service; empty means the provider's own.")] = ""
    api_key: Annotated[Secret | None, says("Key of the service; unset leaves it to the provider's own library.")] = None


class Llm(Section, frozen=True, kw_only=True):
    """The model that does the work."""

    provider: Annotated[
        Literal["openai", "ollama", "lmstudio", "anthropic"], says("Which of the sections below is used.")
    ] = "openai"
    function_calling: Annotated[bool, says("Offer tools in the provider's own way.")] = True
    tries: Annotated[Count, says("Times that a request is sent when the provider fails.")] = 6
    stall_seconds: Annotated[Positive, says("Silence after which a request counts as failed.")] = 300.0
    total_seconds: Annotated[Positive, says("All tries of one request together take no longer.")] = 1800.0
    openai: Provider = Provider(model="gpt-4o")
    ollama: Provider = Provider(model="qwen3-30b", context_length=32_768, base_url="http://localhost:11434/v1")
    lmstudio: Provider = Provider(model="qwen3-30b", context_length=32_768, base_url="http://localhost:1234/v1")
    anthropic: Provider = Provider(context_length=200_000)

    @property
    def chosen(self) -> Provider:
        provider: Provider = getattr(self, self.provider)
        return provider


class ProgressComment(Section, frozen=True, kw_only=True):
    """The one comment that shows how far a task is."""

    enabled: Annotated[bool, says("Write it, and edit it in place.")] = True
    max_history_entries: Annotated[Count, says("Newest entries that it keeps.")] = 100


class Reflection(Section, frozen=True, kw_only=True):
    """Looking back while a plan is carried out."""

    enabled: Annotated[bool, says("Reflect at all.")] = True
    trigger_on_error: Annotated[bool, says("Reflect when an action fails.")] = True
    trigger_interval: Annotated[Whole, says("Reflect after this many actions; 0 means only on errors.")] = 3


class Revision(Section, frozen=True, kw_only=True):
    """Changing a plan after a reflection."""

    max_revisions: Annotated[Whole, says("Revisions of one plan.")] = 3


class Verification(Section, frozen=True, kw_only=True):
    """Checking that the work is done."""

    enabled: Annotated[bool, says("Check for placeholders and against the criteria.")] = True
    max_rounds: Annotated[Count, says("Rounds of checking and additional work.")] = 2


class Replanning(Section, frozen=True, kw_only=True):
    """Limits of planning again."""

    enabled: Annotated[bool, says("Let the model ask for another plan.")] = True
    min_confidence_threshold: Annotated[Share, says("Below this confidence a new plan is not made at once.")] = 0.5
    user_confirmation_threshold: Annotated[Share, says("Between this and the one above a person is asked.")] = 0.3
    max_clarification_requests: Annotated[Whole, says("Questions to a person.")] = 2
    max_redecomposition_attempts: Annotated[Whole, says("Times the goal is decomposed again.")] = 3
    max_regeneration_attempts: Annotated[Whole, says("Times the actions are written again.")] = 3
    max_action_retries: Annotated[Whole, says("Times one action is tried again.")] = 3
    max_partial_replans: Annotated[Whole, says("Times the rest of a plan is made again.")] = 2
    max_plan_revisions: Annotated[Whole, says("Revisions that a failed action asks for.")] = 2
    max_total_replans: Annotated[Whole, says("All of the above together.")] = 10
    same_trigger_max_count: Annotated[Count, says("The same kind at the same place, before it counts as a loop.")] = 2


class Planning(Section, frozen=True, kw_only=True):
    """Plans and their history."""

    enabled: Annotated[bool, says("Plan before acting.")] = True
    max_subtasks: Annotated[Count, says("Steps that one plan may take.")] = 100
    progress_comment: ProgressComment = ProgressComment()
    reflection: Reflection = Reflection()
    revision: Revision = Revision()
    verification: Verification = Verification()
    replanning: Replanning = Replanning()


class PauseResume(Section, frozen=True, kw_only=True):
    """Pausing all work with a file."""

    enabled: Annotated[bool, says("Look for the file.")] = True
    signal_file: Annotated[Word, says("While this file exists, tasks pause.")] = "logs/contexts/pause_signal"
    check_interval: Annotated[Count, says("Look once in this many model calls.")] = 1
    paused_task_expiry_days: Annotated[Whole, says("Tasks that paused longer ago are not resumed by themselves.")] = 30


class TaskStop(Section, frozen=True, kw_only=True):
    """Stopping a task by taking the bot off its assignees."""

    enabled: Annotated[bool, says("Look at the assignees.")] = True
    check_interval: Annotated[Count, says("Look once in this many model calls.")] = 1
    min_check_interval_seconds: Annotated[float, Meta(ge=0), says("And no more often than this.")] = 30.0


class Forge(Section, frozen=True, kw_only=True):
    """One place that issues and pull requests come from."""

    owner: Annotated[str, says("Whose repositories are looked at.")] = ""
    bot_name: Annotated[str, says("The bot's user name.")] = ""
    bot_label: Annotated[Word, says("Label that asks for work.")] = "coding agent"
    processing_label: Annotated[Word, says("Label while a task runs.")] = "coding agent processing"
    done_label: Annotated[Word, says("Label of a completed task.")] = "coding agent done"
    paused_label: Annotated[Word, says("Label of a paused task.")] = "coding agent paused"
    stopped_label: Annotated[Word, says("Label of a stopped task.")] = "coding agent stopped"
    failed_label: Annotated[Word, says("Label of a failed task.")] = "coding agent failed"
    query: Annotated[str, says("Further words of the search, as the forge spells them.")] = ""
    base_url: Annotated[str, says("Address of its API; empty means the public one.")] = ""
    token: Annotated[Secret | None, says("The bot's token.")] = None


class UserConfigApi(Section, frozen=True, kw_only=True):
    """A service, or a file, that knows each user's own settings."""

    enabled: Annotated[bool, says("Ask it.")] = False
    url: Annotated[str, says("Address of the service; `/config/PLATFORM/USER` is added.")] = ""
    file: Annotated[str, says("A YAML file instead of the service: settings under `PLATFORM: USER:`.")] = ""
    api_key: Annotated[Secret | None, says("Key of the service.")] = None
    timeout_seconds: Annotated[Positive, says("How long an answer may take.")] = 5.0


class McpServer(Section, frozen=True, kw_only=True):
    """One MCP server: a command that is started, or a URL that is called."""

    mcp_server_name: Annotated[Word, says("Its tools are called `{name}_{tool}`.")]
    command: Annotated[tuple[str, ...], says("Program and arguments of a server that is started.")] = ()
    env: Annotated[dict[str, Secret], says("All variables that it gets, beside `PATH`, `HOME` and the like.")] = (
        msgspec.field(default_factory=dict)
    )
    url: Annotated[str, says("Address of a server that runs already (streamable HTTP).")] = ""
    headers: Annotated[dict[str, Secret], says("Headers that it is sent, such as `Authorization`.")] = msgspec.field(
        default_factory=dict
    )
    timeout_seconds: Annotated[Positive, says("How long its start, or an answer, may take.")] = 60.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs either a command or a url")


class History(Section, frozen=True, kw_only=True):
    """How much is kept of messages and of user interfaces; `MAX_MESSAGES` and the like are read as well."""

    max_messages: Annotated[Count, says("Messages in the window of the policy `importance`.")] = 24
    max_text_chars: Annotated[Count, says("Characters of a text.")] = 1000
    max_data_chars: Annotated[Count, says("Characters of data.")] = 2000
    max_ui_nodes: Annotated[Count, says("Nodes of a tree of user interface elements.")] = 200
    max_ui_depth: Annotated[Count, says("Depth of such a tree.")] = 2
    max_ui_children: Annotated[Count, says("Children of one node.")] = 20
    max_web_elements: Annotated[Count, says("Elements of a web page.")] = 200
    max_actions: Annotated[Count, says("Completed actions in the snapshot.")] = 8


class Window(Section, frozen=True, kw_only=True):
    """What the model sees."""

    policy: Annotated[
        Literal["fold", "importance", "plain"],
        says("Fold first, keep what is important, or only summarise at `compression_threshold`."),
    ] = "fold"
    reserved_output: Annotated[Whole, says("Tokens of `context_length` that are left for the reply.")] = 4096
    tokens: Annotated[Literal["estimate", "chars4", "bytes4", "o200k", "cl100k"], says("How tokens are counted.")] = (
        "estimate"
    )
    snapshot: Annotated[
        Literal["prefix", "tail"], says("Show the snapshot as of the last fold, or a live one at the end.")
    ] = "prefix"
    language: Annotated[Literal["auto", "ja", "en"], says("Language of summaries; `auto` follows the task.")] = "auto"


class Sticky(Section, frozen=True, kw_only=True):
    """Files whose text is in every window of a conversation."""

    files: Annotated[
        tuple[str, ...], says("Paths, globs and directories that a new conversation begins with, in their order.")
    ] = ()
    share: Annotated[float, Meta(gt=0, le=0.75), says("Share of the window that all of them together may take.")] = 0.25


class Masking(Section, frozen=True, kw_only=True):
    """Which secrets are hidden before anything is stored, logged, exported or sent to the model."""

    kinds: Annotated[
        tuple[MaskedKind, ...],
        says("`[all, -email]` leaves addresses alone. What the process was given as a secret is hidden in any case."),
    ] = (ALL,)

    @property
    def chosen(self) -> frozenset[str] | None:
        """The masks that are used; None means all of them."""
        named = [kind for kind in self.kinds if not kind.startswith("-")]
        excepted = [kind.removeprefix("-") for kind in self.kinds if kind.startswith("-")]
        chosen = _masks(named or [ALL] if excepted else named) - _masks(excepted)
        return None if chosen == MASKS else chosen


def _masks(kinds: list[str]) -> frozenset[str]:
    unknown = [kind for kind in kinds if kind.upper() not in _KINDS]
    if unknown:
        raise SettingsError(f"There is no kind {unknown[0]!a:.60} to mask.", path="masking.kinds")
    return frozenset().union(*(_KINDS[kind.upper()] for kind in kinds))


class Lease(Section, frozen=True, kw_only=True):
    """The right to write one task."""

    heartbeat_seconds: Annotated[Positive, says("The holder renews it this often.")] = 30.0
    expiry_seconds: Annotated[Positive, says("Without a heartbeat for this long it can be taken.")] = 60.0


class Monitor(Section, frozen=True, kw_only=True):
    """When a person should look."""

    interval_seconds: Annotated[Positive, says("Time between two looks.")] = 300.0
    long_running_hours: Annotated[Positive, says("A task that runs longer is reported.")] = 6.0
    disk_warning_gb: Annotated[Positive, says("A store larger than this gives a warning.")] = 10.0
    disk_critical_gb: Annotated[Positive, says("A store larger than this is critical.")] = 50.0
    failure_rate: Annotated[Share, says("A larger share of failed tasks gives a warning.")] = 0.1
    backlog: Annotated[Whole, says("More pending tasks than this give a warning.")] = 100


class Retention(Section, frozen=True, kw_only=True):
    """How long completed tasks stay."""

    compress_after_days: Annotated[Whole, says("Older tasks are gzipped.")] = 7
    emergency_after_days: Annotated[Whole, says("Older tasks go when the disk is full.")] = 14
    delete_after_days: Annotated[Whole, says("Older tasks are deleted.")] = 30
    backup_generations: Annotated[Count, says("Backups that are kept.")] = 7


class Access(Section, frozen=True, kw_only=True):
    """Who may see whose tasks, where a service reads for others; see [access.md](access.md) for what it protects."""

    admins: Annotated[tuple[str, ...], says("Users who see the tasks of all.")] = ()
    tokens: Annotated[
        dict[str, Secret], says("The token of each user. Once there is one, a call without a token has no access.")
    ] = msgspec.field(default_factory=dict)


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    context_storage: ContextStorage = ContextStorage()
    context_inheritance: ContextInheritance = ContextInheritance()
    llm: Llm = Llm()
    max_llm_process_num: Annotated[Count, says("Model calls that one task may take.")] = 1000
    system_prompt: Annotated[str, says("Further words of the system prompt.")] = ""
    planning: Planning = Planning()
    fold_at: Annotated[Share, says("Share of the window above which it is folded.")] = 0.97
    fold_to: Annotated[Share, says("Share of the window that is left after folding.")] = 0.52
    window: Window = Window()
    history: History = History()
    sticky: Sticky = Sticky()
    masking: Masking = Masking()
    lease: Lease = Lease()
    monitor: Monitor = Monitor()
    retention: Retention = Retention()
    access: Access = Access()
    pause_resume: PauseResume = PauseResume()
    task_stop: TaskStop = TaskStop()
    github: Forge = Forge()
    gitlab: Forge = Forge()
    user_config_api: UserConfigApi = UserConfigApi()
    mcp_servers: Annotated[tuple[McpServer, ...], says("MCP servers whose tools the model may use.")] = ()

    @property
    def store_url(self) -> str:
        return self.context_storage.base_dir if self.context_storage.enabled else "memory:"
