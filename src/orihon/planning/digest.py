"""Lessons as text, and the digest of a run: the sections that the core keeps and shows to the next run.

A digest is written in the language of its task and refreshed while the run goes on, so that it exists however the run
ends. Every text from a run stands on one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from orihon.inheritance.outline import (
    DETAIL,
    EXECUTION,
    HISTORY,
    NOTE,
    OUTLINE,
    PLAN,
    RECOMMENDATIONS,
    VERIFICATION,
    Section,
)
from orihon.planning.history import Lesson, Run, Topic, learn, read_run
from orihon.planning.i18n import Words, words_in
from orihon.planning.plan_state import normalise, shorten
from orihon.planning.schema import Value, Verification, make_entry
from orihon.task.task import Task

MAX_CHARS = 200
MAX_SUBTASKS = 30
MAX_LINES = 10  # of one topic
MAX_ADVICE = 3  # recommendations of one kind

# the kind of section that a topic belongs to, which a setting can switch off
TOPIC_KINDS: dict[Topic, str] = {
    "worked": "pattern",
    "failure": "reflection",
    "dependency": "plan",
    "effort": "plan",
    "revision": "reflection",
    "replan": "reflection",
    "problem": "reflection",
    "criterion": "verification",
    "placeholder": "verification",
    "work": "verification",
}


def make_digest(run: Run, language: str) -> list[Section]:
    """Return the sections of a run: its plan, how it went, its verification, and what the next run should do."""
    words, lessons = words_in(language), learn([run])
    failures = [f"  {describe(item, words, label=False)}" for item in lessons if item.topic == "failure"][:MAX_LINES]
    sections = [
        (PLAN, "plan", OUTLINE, _describe_plan(run, words)),
        (PLAN, "plan", DETAIL, _describe_goal(run, words)),
        (PLAN, "plan", DETAIL, describe_all(lessons, words, "effort", "dependency")),
        (EXECUTION, "execution", HISTORY, _count_actions(lessons, words)),
        (EXECUTION, "pattern", DETAIL, describe_all(lessons, words, "worked")),
        (EXECUTION, "reflection", HISTORY, [f"{words['failures']}:", *failures] if failures else []),
        (EXECUTION, "reflection", DETAIL, describe_all(lessons, words, "revision", "replan", "problem")),
        (VERIFICATION, "verification", OUTLINE, _describe_verifications(run, words)),
        (VERIFICATION, "verification", OUTLINE, describe_all(lessons, words, "criterion")),
        (VERIFICATION, "verification", DETAIL, describe_all(lessons, words, "placeholder", "work")),
        *((RECOMMENDATIONS, kind, OUTLINE, lines) for kind, lines in _recommend(run, lessons, words)),
    ]
    made = [
        Section(title=title, kind=kind, priority=priority, lines=tuple(lines))
        for title, kind, priority, lines in sections
    ]
    return [section for section in made if section.lines]


def describe_all(lessons: Sequence[Lesson], words: Words, *topics: Topic) -> list[str]:
    """Return the lessons of some topics as texts, a few of each."""
    lines: list[str] = []
    for topic in topics:
        texts = (describe(item, words) for item in lessons if item.topic == topic)
        lines += islice(filter(None, texts), MAX_LINES)
    return lines


def describe(lesson: Lesson, words: Words, *, label: bool = True) -> str:
    """Return a lesson as one line; empty if there is nothing to say."""
    heading, text = words[lesson.topic], shorten(lesson.what, MAX_CHARS)
    if lesson.topic == "criterion":
        heading = words["met" if lesson.ok else "unmet"]
    if lesson.topic == "effort":
        estimated, adjusted = lesson.names
        if estimated == adjusted:
            return ""
        text += f" ({words[estimated]} → {words[adjusted]})"
    if lesson.topic == "dependency":
        text += f" ← {shorten(', '.join(lesson.names), MAX_CHARS)}"
    if lesson.tool:
        text += f" ({shorten(lesson.tool, MAX_CHARS)})"
    if lesson.why:
        why = shorten(lesson.why, MAX_CHARS)
        text += f" ({words['cause']}: {why})" if lesson.topic == "problem" else f": {why}"
    if lesson.topic == "failure" and lesson.ok:
        text += f" ({words['recovered']})"
    if lesson.remedy:
        prefix = f"{words['helped' if lesson.ok else 'try']}: " if lesson.topic == "failure" else ""
        text += f" → {prefix}{shorten(lesson.remedy, MAX_CHARS)}"
    return f"{heading}: {text}" if label else text


def _count_actions(lessons: Iterable[Lesson], words: Words) -> list[str]:
    topics = Counter("failed" if item.topic == "failure" and not item.ok else item.topic for item in lessons)
    return [words["actions"].format(topics["worked"], topics["failed"])] if topics["worked"] or topics["failed"] else []


def _describe_plan(run: Run, words: Words) -> Iterator[str]:
    subtasks = run.plan.subtasks
    if run.plan.goal:
        yield f"{words['goal']}: {shorten(run.plan.goal, MAX_CHARS)}"
    if not subtasks:
        return
    yield f"{words['subtasks']}:"
    for part in subtasks[:MAX_SUBTASKS]:
        yield f"  [{words[part.status]}] {shorten(part.name, MAX_CHARS)}"
    if len(subtasks) > MAX_SUBTASKS:
        yield f"  {words['more'].format(len(subtasks) - MAX_SUBTASKS)}"
    counts = Counter(part.status for part in subtasks)
    done = words["done"].format(counts.pop("completed", 0), len(subtasks))
    yield f"{words['completion']}: {'; '.join([done, *(f'{words[name]} {count:,}' for name, count in counts.items())])}"


def _describe_goal(run: Run, words: Words) -> list[str]:
    goal, reasoning = run.plan.goal_understanding, run.plan.task_decomposition.reasoning
    texts = [("criterion", text) for text in goal.success_criteria[:MAX_LINES]]
    texts += [("constraint", text) for text in goal.constraints[:MAX_LINES]]
    texts += [("approach", reasoning)] if reasoning else []
    return [f"{words[name]}: {shorten(text, MAX_CHARS)}" for name, text in texts]


def _describe_verifications(run: Run, words: Words) -> Iterator[str]:
    rounds = run.newest(Verification)
    if not rounds:
        return
    found, left = _collect_issues(rounds)
    passed = words["passed" if rounds[-1].verification_passed else "not_passed"]
    yield f"{words['rounds']}: {len(rounds):,} ({passed})"
    for name, texts in (("found", found), ("resolved", [text for text in found if text not in left])):
        if texts:
            yield f"{words[name]}:"
            yield from (f"  {shorten(text, MAX_CHARS)}" for text in texts[:MAX_LINES])


def _collect_issues(rounds: list[Verification]) -> tuple[list[str], list[str]]:
    """Return the issues that all verifications found, and those that the last one found."""
    found = {normalise(text): text for item in rounds for text in item.issues_found}
    last = {normalise(text) for item in rounds[-1:] for text in item.issues_found}
    return list(found.values()), [text for name, text in found.items() if name in last]


def _recommend(run: Run, lessons: list[Lesson], words: Words) -> Iterator[tuple[str, list[str]]]:
    """Yield what the run left to do, what helped, what to avoid and what to use again, each with its kind."""
    rounds = run.newest(Verification)
    failures = [item for item in lessons if item.topic == "failure"]
    unsolved = [item for item in failures if not item.remedy and not item.ok]
    unmet = [item.what for item in lessons if item.topic == "criterion" and not item.ok]
    places = [place for item in rounds[-1:] for place in item.placeholder_detected.locations]
    advice = [
        ("plan", "finish", [part.name for part in run.plan.subtasks if part.status in _OPEN]),
        ("verification", "finish", unmet),
        ("verification", "resolve", _collect_issues(rounds)[1]),
        ("verification", "fill", places),
        ("reflection", "remedy", [f"{item.what} → {item.remedy}" for item in failures if item.remedy]),
        ("reflection", "avoid", [describe(item, words, label=False) for item in unsolved]),
        ("pattern", "reuse", [describe(item, words, label=False) for item in lessons if item.topic == "worked"]),
    ]
    for kind, name, texts in advice:
        yield kind, [words[name].format(shorten(text, MAX_CHARS)) for text in texts[:MAX_ADVICE]]


_OPEN = frozenset(("pending", "running", "failed"))


def record_value(task: Task, value: Value) -> None:
    """Append a value to a task's planning history and refresh its digest, for programs that plan on their own."""
    task.plan(make_entry(value))
    run = read_run(task.writer.lease.store, task.row)
    task.writer.event("note", **{NOTE: msgspec.to_builtins(make_digest(run, task.log.language))})
