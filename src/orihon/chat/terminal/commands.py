"""The slash commands: one table with name, arguments, help in both languages, what to do, and how Tab goes on.

To add one is to add an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from orihon.chat import book
from orihon.chat.terminal import looking, saving, sticking, turning
from orihon.chat.terminal.paths import paths
from orihon.errors import UsageError
from orihon.terminal import Language

if TYPE_CHECKING:
    from orihon.chat.terminal.sitting import Chat

Act = Callable[["Chat", str], None]
Complete = Callable[["Chat", str], Iterable[str]]


class Leave(Exception):
    """The person wants to go."""


def _nothing(_: Chat, __: str) -> Iterable[str]:
    return ()


class Command(NamedTuple):
    """One of them; `complete` gives whole arguments, and what does not begin as typed is left out."""

    name: str
    arguments: str
    help: dict[Language, str]
    act: Act
    complete: Complete = _nothing


def run(chat: Chat, line: str) -> None:
    """Carry out what was typed."""
    name, _, argument = line.strip().partition(" ")
    command = named(name)
    if command is None:
        raise UsageError(chat.words("unknown", name=ascii(name)[1:-1][:40]), hint=chat.words("unknown hint"))
    command.act(chat, argument.strip())


def named(name: str) -> Command | None:
    """The command of a name such as `/help`."""
    return next((command for command in COMMANDS if command.name == name), None)


def completed(chat: Chat, line: str) -> list[str]:
    """The whole lines that a command could become."""
    name, space, argument = line.partition(" ")
    if not space:
        return [command.name for command in COMMANDS if command.name.startswith(name)]
    command = named(name)
    found = command.complete(chat, argument) if command is not None else ()
    return [f"{name} {whole}" for whole in found if whole.startswith(argument)]


def _help(chat: Chat, argument: str) -> None:
    wanted = [command for command in COMMANDS if argument.lstrip("/") in {"", command.name[1:]}]
    heads = [f"{command.name} {command.arguments}".strip() for command in wanted]
    width = max(map(len, heads), default=0)
    pairs = zip(heads, wanted, strict=True)
    chat.face.show("\n".join(f"{head:<{width}}  {command.help[chat.words.language]}" for head, command in pairs))


def _quit(_: Chat, __: str) -> NoReturn:
    raise Leave


def _names(_: Chat, __: str) -> Iterable[str]:
    return [command.name for command in COMMANDS] + [command.name[1:] for command in COMMANDS]


def _conversations(chat: Chat, _: str) -> Iterable[str]:
    return [one.name for one in book.listing(chat.engine, chat.directory, user=chat.user)]


def _files(chat: Chat, begun: str) -> Iterable[str]:
    return paths(begun, chat.directory)


def _tangents(chat: Chat, _: str) -> Iterable[str]:
    ends = ["end", "end none", "end tail", "end summary"] if chat.conversation.is_in_tangent else []
    return [*ends, "from ", "back"]


def _models(chat: Chat, _: str) -> Iterable[str]:
    llm = chat.setup.settings.llm
    return [f"{name}:{getattr(llm, name).model}" for name in ("openai", "ollama", "lmstudio", "anthropic")]


COMMANDS: tuple[Command, ...] = (
    Command(
        "/help",
        "[COMMAND]",
        {"en": "list the commands, or explain one", "ja": "コマンドの一覧や説明を表示"},
        _help,
        _names,
    ),
    Command(
        "/compact",
        "[FOCUS]",
        {
            "en": "summarise older messages, show the summary and what it saves; FOCUS says what matters",
            "ja": "古い部分を要約し、要約と減ったトークンを表示。FOCUS で重視する点を指定",
        },
        turning.compact,
    ),
    Command(
        "/tangent",
        "[QUESTION] | from N | end [none|tail|summary] | back",
        {
            "en": "a side conversation: begin, say that it began after message N, leave it, put its files back",
            "ja": "タンジェント: 始める、メッセージ N の後からとする、何を残して終えるか選ぶ、ファイルを戻す",
        },
        turning.tangent,
        _tangents,
    ),
    Command(
        "/rewind",
        "[N]",
        {
            "en": "go back to just after message N, or to before the last question",
            "ja": "メッセージ N の直後、または最後の質問の前に戻る",
        },
        turning.rewind,
    ),
    Command(
        "/undo",
        "",
        {
            "en": "take back the last compact, rewind, clear or restore",
            "ja": "最後の要約、巻き戻し、クリア、復元を取り消す",
        },
        turning.undo,
    ),
    Command(
        "/checkpoint",
        "[LABEL] | list | expand N | diff N [M] | restore N [--hard] | clean | on | off",
        {
            "en": "the files and the conversation at a moment: take one, look, go back (--hard: newer files go too)",
            "ja": "ファイルと会話の時点: 作る、見る、戻る (--hard で新しいファイルも消す)",
        },
        saving.checkpoint,
        saving.complete,
    ),
    Command(
        "/retry",
        "",
        {"en": "ask for the answer that is missing or was cancelled", "ja": "欠けている、または中止した返答を求める"},
        turning.retry,
    ),
    Command(
        "/context",
        "add [--force] PATH | remove PATH | show",
        {
            "en": "files whose text is in every window: a path, a pattern or a directory",
            "ja": "常に見せるファイル: パス、パターン、ディレクトリ",
        },
        sticking.context,
        sticking.offered,
    ),
    Command(
        "/usage",
        "",
        {"en": "tokens by source, share of the window, cache, cost", "ja": "トークンの内訳、割合、キャッシュ、費用"},
        looking.usage,
    ),
    Command(
        "/transcript",
        "[N]",
        {"en": "the last N entries, with the numbers of the messages", "ja": "最後の N 件をメッセージ番号付きで表示"},
        looking.transcript,
    ),
    Command(
        "/model",
        "[NAME]",
        {"en": "show the model, or go on with another one", "ja": "モデルを表示、または別のモデルに切り替え"},
        turning.model,
        _models,
    ),
    Command("/tools", "", {"en": "the tools, by origin", "ja": "ツールを提供元ごとに表示"}, looking.tools),
    Command("/clear", "", {"en": "begin anew; the log keeps all", "ja": "会話を空にする (記録は残る)"}, turning.clear),
    Command(
        "/save", "FILE", {"en": "write the conversation to a file", "ja": "会話をファイルに保存"}, turning.save, _files
    ),
    Command(
        "/load",
        "FILE",
        {"en": "go on in a new conversation with what a file holds", "ja": "ファイルの内容を新しい会話で続ける"},
        turning.load,
        _files,
    ),
    Command(
        "/list",
        "",
        {"en": "the conversations of this directory", "ja": "このディレクトリの会話"},
        looking.conversations,
    ),
    Command(
        "/resume",
        "NAME",
        {"en": "go on in another conversation", "ja": "別の会話を続ける"},
        turning.resume,
        _conversations,
    ),
    Command("/name", "", {"en": "what this conversation is called", "ja": "この会話の名前"}, looking.name),
    Command("/quit", "", {"en": "leave; Ctrl-D does the same", "ja": "終了 (Ctrl-D と同じ)"}, _quit),
)
