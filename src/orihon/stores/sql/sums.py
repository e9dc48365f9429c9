"""What the rows of tasks add up to, in SQL; a SQLite file keeps it by day, user and status, right by triggers.

To count 100,000 tasks one by one takes longer than a person waits; the table `task_totals` has one line for each day,
user and status, however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Iterator

_MILLISECONDS = (
    "CAST(round((julianday({row}.completed_at) - julianday({row}.started_at)) * 86400000) AS BIGINT)"  # exact to undo
)
FIGURES = {
    "tasks": "1",
    "messages": "{row}.message_count",
    "tokens": "coalesce({row}.total_tokens, 0)",
    "llm_calls": "coalesce({row}.llm_call_count, 0)",
    "tool_calls": "coalesce({row}.tool_call_count, 0)",
    "compressions": "coalesce({row}.compression_count, 0)",
    "timed": f"CASE WHEN {_MILLISECONDS} IS NULL THEN 0 ELSE 1 END",
    "milliseconds": f"coalesce({_MILLISECONDS}, 0)",
    "size_bytes": "{row}.size_bytes",
    "packed_bytes": "coalesce({row}.packed_bytes, {row}.size_bytes)",
    "summaries": "{row}.summary_count",
    "summary_failures": "{row}.summary_failures",
    "summarised_tokens": "{row}.summarised_tokens",
    "summary_tokens": "{row}.summary_tokens",
}
GROUPS = {"day": "substr({row}.created_at, 1, 10)", "user": "coalesce({row}.\"user\", '')", "status": "{row}.status"}
COLUMNS = (  # of `tasks`, that a figure or a group is made of
    *("created_at", "user", "status", "started_at", "completed_at", "message_count", "total_tokens", "llm_call_count"),
    *("tool_call_count", "compression_count", "size_bytes", "packed_bytes", "summary_count", "summary_failures"),
    *("summarised_tokens", "summary_tokens"),
)


def schema() -> Iterator[str]:
    """The statements that make table and triggers, and fill the table."""
    figures = ", ".join(f"{name} INTEGER NOT NULL DEFAULT 0" for name in FIGURES)
    yield (
        "CREATE TABLE IF NOT EXISTS task_totals (day TEXT NOT NULL, user TEXT NOT NULL, status TEXT NOT NULL, "
        f"{figures}, PRIMARY KEY (day, user, status)) WITHOUT ROWID"
    )
    for name, when, body in (
        ("insert", "INSERT", _changed("new", "+")),
        ("delete", "DELETE", _changed("old", "-")),
        ("update", f"UPDATE OF {', '.join(COLUMNS)}", f"{_changed('old', '-')} {_changed('new', '+')}"),
    ):
        yield f"CREATE TRIGGER IF NOT EXISTS task_totals_{name} AFTER {when} ON tasks BEGIN {body} END"
    yield "DELETE FROM task_totals"
    groups, sums = _of("tasks", GROUPS), [f"SUM({figure})" for figure in _of("tasks", FIGURES)]
    names = ", ".join((*GROUPS, *FIGURES))
    yield f"INSERT INTO task_totals ({names}) SELECT {', '.join((*groups, *sums))} FROM tasks GROUP BY 1, 2, 3"  # noqa: S608


def _changed(row: str, sign: str) -> str:
    """A row is counted, or no longer."""
    day, user, status = _of(row, GROUPS)
    there = f"day = {day} AND user = {user} AND status = {status}"
    figures = ", ".join(
        f"{name} = {name} {sign} {figure}" for name, figure in zip(FIGURES, _of(row, FIGURES), strict=True)
    )
    # not INSERT OR IGNORE: in a trigger, the statement that fired it decides what becomes of a conflict
    insert = (
        f"INSERT INTO task_totals (day, user, status) SELECT {day}, {user}, {status} "  # noqa: S608
        f"WHERE NOT EXISTS (SELECT 1 FROM task_totals WHERE {there});"
    )
    return f"{insert} UPDATE task_totals SET {figures} WHERE {there};"  # noqa: S608


def _of(row: str, expressions: dict[str, str]) -> list[str]:
    return [expression.format(row=row) for expression in expressions.values()]
