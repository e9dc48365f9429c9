"""What the chat says to people, in both languages; the locale of the terminal chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Language = Literal["en", "ja"]


def language_of(environ: Mapping[str, str]) -> Language:
    """The language of messages, as every program finds it: the first of these that is set."""
    names = (environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "ja" if next(filter(None, names), "").startswith("ja") else "en"


class Words:
    """The texts of one language."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language

    def __call__(self, name: str, /, **values: Any) -> str:
        """A text, with its values in place."""
        return WORDS[self.language][name].format(**values)

    def duration(self, seconds: int) -> str:
        """A time for people, in its two largest units."""
        units = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
        parts: list[str] = []
        left = seconds
        for size, unit in units:
            count, left = divmod(left, size)
            if count or (unit == "seconds" and not parts):
                parts.append(self(unit, count=count))
        return " ".join(parts[:2])


WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "days": "{count} d",
        "hours": "{count} h",
        "minutes": "{count} min",
        "seconds": "{count} s",
        # sitting down
        "begun": "Conversation {name}, with {model}. /help lists the commands; Ctrl-D leaves.",
        "resumed": "Conversation {name} goes on, with {model}.",
        "sent": "What you had typed last is sent now.",
        "unanswered": "The last message has no answer yet: /retry asks for it.",
        "leave": "Ctrl-D or /quit leaves; /help lists the commands.",
        "left": "`orihon chat --resume {name}` goes on.",
        "allow": "Allow this? [y/N] ",
        # answering
        "cancelled": "Cancelled. What was said until then is kept; /retry asks again.",
        "failed": "failed: {text}",
        "again": "There is nothing to answer.",
        # the meter
        "share": "{percent}% of {window}",
        "folded": "{count} folded",
        "tangent": "tangent",
        "tangents": "tangent {count}",
        "overfull": "the window is too small",
        "window": "Window: {used:,} of {window:,} tokens ({percent} %)",
        "schemas": "tools",
        "reserved": "left for the answer",
        "free": "free",
        "shown": "Messages: {whole:,} whole, {folded:,} folded, {left_out:,} left out",
        "requests": "Requests: {requests:,} · {input:,} tokens in, {output:,} out",
        "cached": "From the provider's cache: {tokens:,} ({percent} %)",
        "cost": "Cost: {cost:.4f}, at {input:g} and {output:g} for a million tokens in and out",
        # commands
        "unknown": "There is no command {name}.",
        "unknown hint": "/help lists them; begin with a space to say something that begins with a slash.",
        "number": "{text} is not the number of a message.",
        "number hint": "/transcript shows the numbers.",
        "compacted": "{messages:,} messages are summarised: {before:,} tokens became {after:,}. /undo takes it back.",
        "nothing to compact": "There is nothing to gain yet: the conversation is short.",
        "undone": "Taken back: {what}.",
        "rewind": "the rewind",
        "clear": "the clearing",
        "summary": "the summary",
        "restore": "the restore",
        "rewound": "Back to just after message {seq}. /undo takes it back.",
        "nothing to rewind": "Nothing was said yet.",
        "cleared": "The conversation is empty; the log keeps all. /undo takes it back.",
        "tangent begun": "A tangent is open. `/tangent end [none|tail|summary]` leaves it.",
        "tangent from": "What was said after message {seq} is a tangent now. `/tangent end` leaves it.",
        "tangent ended": "Back in the main conversation after {duration}; kept: {kept}.",
        "tangent deeper": "Back in the tangent around it after {duration}; kept: {kept}.",
        "none": "nothing",
        "tail": "the last exchange",
        "kept summary": "a summary",
        "model": "{model}, with a window of {window:,} tokens.",
        "empty": "Nothing was said yet.",
        "no conversations": "There is no conversation in this directory.",
        "listed": "{mark} {name}  {uuid}  {updated}  {replies:,} replies, {tokens:,} tokens{status}",
        "in use": ", in use or interrupted",
        "named": "This is {name} ({uuid}).",
        "saved": "{path} holds the conversation, {count:,} entries.",
        "no file": "Which file?",
        "no file hint": "/save FILE writes it, /load FILE reads it.",
        "already open": "You are in that conversation.",
        "checkpoint taken": "Checkpoint {tag}: {label}",
        "checkpoint line": "{tag:>6}  {when}  files: {files:<4} {label}",
        "no checkpoints": "There is no checkpoint yet.",
        "which checkpoint": "Which checkpoint?",
        "checkpoints hint": "/checkpoint list shows them; /checkpoint restore 3 goes back to the third turn.",
        "no difference": "The files are as they were then.",
        "restored": "Files and conversation are back at checkpoint {tag}. /undo takes it back.",
        "written": "Brought back ({count:,}): {paths}",
        "removed": "Removed ({count:,}): {paths}",
        "kept files": "Newer, and still there ({count:,}): {paths}",
        "cleaned": "Forgotten: {count:,} checkpoints.",
        "checkpoints on": "Checkpoints are taken from now on.",
        "checkpoints off": "No more checkpoints are taken.",
        "checkpoints are off": "There are no checkpoints in this directory.",
        "checkpoints off hint": "They are there by themselves in a git repository; /checkpoint on switches them on.",
        "changed inside": "Changed in the files meanwhile: {paths}. `/tangent back` puts them back.",
        "files back": "The files are as they were before the tangent.",
        "nothing to put back": "No tangent was left whose files could be put back.",
        "context how": "What about the sticky files?",
        "context hint": "/context add PATH, /context remove PATH, or /context show.",
        "sticky": "Sticky files: {tokens:,} of {most:,} tokens ({percent} %)",
        "sticky added": "In every window from now on: {files}",
        "sticky removed": "No longer in every window: {files}",
        "builtin": "Built in",
        "engine": "Answered by Orihon itself",
        "mcp": "MCP server {server}",
    },
    "ja": {
        "days": "{count}日",
        "hours": "{count}時間",
        "minutes": "{count}分",
        "seconds": "{count}秒",
        "begun": "会話 {name} ({model})。/help でコマンド一覧、Ctrl-D で終了します。",
        "resumed": "会話 {name} を続けます ({model})。",
        "sent": "最後に入力した内容を今送ります。",
        "unanswered": "最後の発言にはまだ返答がありません。/retry で求められます。",
        "leave": "Ctrl-D か /quit で終了します。/help でコマンド一覧を表示します。",
        "left": "`orihon chat --resume {name}` で続けられます。",
        "allow": "許可しますか? [y/N] ",
        "cancelled": "中止しました。そこまでの内容は残ります。/retry でもう一度求められます。",
        "failed": "失敗: {text}",
        "again": "返答を待つ発言はありません。",
        "share": "{window} の {percent}%",
        "folded": "折りたたみ {count}",
        "tangent": "タンジェント",
        "tangents": "タンジェント {count}",
        "overfull": "ウィンドウが小さすぎます",
        "window": "ウィンドウ: {window:,} トークン中 {used:,} ({percent} %)",
        "schemas": "ツール定義",
        "reserved": "返答用",
        "free": "空き",
        "shown": "メッセージ: そのまま {whole:,}、折りたたみ {folded:,}、省略 {left_out:,}",
        "requests": "リクエスト: {requests:,} 回 · 入力 {input:,}、出力 {output:,} トークン",
        "cached": "プロバイダーのキャッシュから: {tokens:,} ({percent} %)",
        "cost": "費用: {cost:.4f} (百万トークンあたり入力 {input:g}、出力 {output:g})",
        "unknown": "コマンド {name} はありません。",
        "unknown hint": "/help で一覧を表示します。スラッシュで始まる文を送るには、先頭に空白を入れてください。",
        "number": "{text} はメッセージの番号ではありません。",
        "number hint": "/transcript で番号を確認できます。",
        "compacted": "{messages:,} 件を要約しました: {before:,} → {after:,} トークン。/undo で元に戻せます。",
        "nothing to compact": "会話がまだ短いため、要約しても減りません。",
        "undone": "元に戻しました: {what}。",
        "rewind": "巻き戻し",
        "clear": "クリア",
        "summary": "要約",
        "restore": "復元",
        "rewound": "メッセージ {seq} の直後に戻りました。/undo で元に戻せます。",
        "nothing to rewind": "まだ何も話していません。",
        "cleared": "会話を空にしました。記録はすべて残っています。/undo で元に戻せます。",
        "tangent begun": "タンジェントを始めました。`/tangent end [none|tail|summary]` で戻ります。",
        "tangent from": "メッセージ {seq} より後はタンジェントになりました。`/tangent end` で戻ります。",
        "tangent ended": "{duration}のタンジェントから本筋に戻りました。残したもの: {kept}。",
        "tangent deeper": "{duration}のタンジェントから外側のタンジェントに戻りました。残したもの: {kept}。",
        "none": "なし",
        "tail": "最後のやり取り",
        "kept summary": "要約",
        "model": "{model}、ウィンドウは {window:,} トークンです。",
        "empty": "まだ何も話していません。",
        "no conversations": "このディレクトリに会話はありません。",
        "listed": "{mark} {name}  {uuid}  {updated}  返答 {replies:,}、{tokens:,} トークン{status}",
        "in use": "、使用中または中断",
        "named": "この会話は {name} ({uuid})です。",
        "saved": "会話を {path} に保存しました ({count:,} 件)。",
        "no file": "ファイル名を指定してください。",
        "no file hint": "/save FILE で書き出し、/load FILE で読み込みます。",
        "already open": "その会話はもう開いています。",
        "checkpoint taken": "チェックポイント {tag}: {label}",
        "checkpoint line": "{tag:>6}  {when}  ファイル {files:<4} {label}",
        "no checkpoints": "チェックポイントはまだありません。",
        "which checkpoint": "どのチェックポイントですか?",
        "checkpoints hint": "/checkpoint list で一覧、/checkpoint restore 3 で三番目のターンに戻ります。",
        "no difference": "ファイルはその時のままです。",
        "restored": "ファイルと会話をチェックポイント {tag} に戻しました。/undo で取り消せます。",
        "written": "復元したファイル {count:,}: {paths}",
        "removed": "削除したファイル {count:,}: {paths}",
        "kept files": "残した新しいファイル {count:,}: {paths}",
        "cleaned": "チェックポイント {count:,} 件を削除しました。",
        "checkpoints on": "これからチェックポイントを作ります。",
        "checkpoints off": "チェックポイントを作るのをやめました。",
        "checkpoints are off": "このディレクトリにチェックポイントはありません。",
        "checkpoints off hint": "git リポジトリでは自動で作られます。/checkpoint on で作り始めます。",
        "changed inside": "その間に変わったファイル: {paths}。`/tangent back` で元に戻せます。",
        "files back": "ファイルをタンジェントの前の状態に戻しました。",
        "nothing to put back": "ファイルを戻せるタンジェントはありません。",
        "context how": "スティッキーファイルをどうしますか?",
        "context hint": "/context add PATH、/context remove PATH、/context show。",
        "sticky": "スティッキーファイル: {most:,} トークン中 {tokens:,} ({percent} %)",
        "sticky added": "今後は常に見せるファイル: {files}",
        "sticky removed": "もう常には見せないファイル: {files}",
        "builtin": "組み込み",
        "engine": "Orihon が答えるもの",
        "mcp": "MCP サーバー {server}",
    },
}
