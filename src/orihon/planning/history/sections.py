"""The sections that tell a new run about the earlier ones.

Their names are those of the seed, in every language. An outline gives the short form; a run gives the long one when
`detail` is asked for. Every text from a run stands on one line, so that none can pose as a section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from orihon.planning.history.learnings import judged, learnings
from orihon.planning.history.outcomes import outcomes
from orihon.planning.history.outline import LARGE, SMALL, Advice, Outline, line, outline_of, outlined
from orihon.planning.history.runs import Execution
from orihon.planning.history.steps import norm
from orihon.planning.history.words import WORDS, Words

PLAN = "Previous Plan Summary"
EXECUTION = "Execution History"
VERIFICATION = "Verification History"
RECOMMENDATIONS = "Recommendations for Current Processing"

SHOWN = 20  # lines of one kind of detail
CHARS = LARGE.chars

Run = Execution | dict[str, Any]


class _Told(NamedTuple):
    """A run as it is told: its outline, and the run itself where details are wanted."""

    outline: Outline
    run: Execution | None


class _Parts(NamedTuple):
    """What may be told."""

    plans: bool
    verifications: bool
    reflections: bool
    patterns: bool


def sections(
    executions: Run | Iterable[Run],
    *,
    language: str = "en",
    plans: bool = True,
    verifications: bool = True,
    reflections: bool = True,
    patterns: bool = True,
    detail: bool = True,
) -> list[tuple[str, str]]:
    """The sections that have something to say, each with its name and its text; the newest run comes first."""
    words = WORDS.get(language, WORDS["en"])
    parts = _Parts(plans, verifications, reflections, patterns)
    runs = [executions] if isinstance(executions, Execution | dict) else list(executions)
    told = [_told(run, detail=detail) for run in runs]
    found = [
        (PLAN, _each(told, words, _plan_lines) if plans else ""),
        (EXECUTION, _each(told, words, lambda one, words: _execution_lines(one, words, parts))),
        (VERIFICATION, _each(told, words, _verification_lines) if verifications else ""),
        (RECOMMENDATIONS, "\n".join(_recommendations([one.outline for one in told], words, parts))),
    ]
    return [(name, text) for name, text in found if text]


def _told(run: Run, *, detail: bool) -> _Told:
    if isinstance(run, dict):
        return _Told(outline_of(run), None)
    return _Told(outlined(run, LARGE), run) if detail else _Told(outlined(run, SMALL), None)


def _each(told: list[_Told], words: Words, lines: Any) -> str:
    """What each run has to say, under a line that names it."""
    blocks = []
    for one in told:
        said = list(lines(one, words))
        if said:
            uuid, status, when = one.outline.uuid[:8], one.outline.status, one.outline.completed_at[:10]
            head = words["run"].format(uuid=line(uuid, 8), status=", ".join(filter(None, (line(status, 20), when))))
            blocks.append("\n".join([head, *said]))
    return "\n".join(blocks)


def _plan_lines(one: _Told, words: Words) -> Iterator[str]:
    about = one.outline
    if about.goal:
        yield f"- {words['goal']}: {line(about.goal, CHARS)}"
    if one.run is not None:
        yield from _goal_details(one.run, words)
    if about.subtasks:
        yield f"- {words['subtasks']}:"
        extra = _subtask_details(one.run, words) if one.run else {}
        for number, part in enumerate(about.subtasks):
            yield f"  - [{words[part.status]}] {line(part.description, CHARS)}{extra.get(number, '')}"
    total = sum(about.subtask_counts.values())
    if hidden := max(0, total - len(about.subtasks)):
        yield f"  - {words['more'].format(hidden)}"
    if total:
        others = [f"{words[name]} {count:,}" for name, count in _others(about.subtask_counts) if name in words]
        done = words["done"].format(about.subtask_counts.get("completed", 0), total)
        yield f"- {words['completion']}: {'; '.join([done, *others])}"


def _others(counts: dict[str, int]) -> list[tuple[str, int]]:
    names = ("failed", "skipped", "running", "pending")
    return [(name, counts[name]) for name in names if counts.get(name)]


def _goal_details(run: Execution, words: Words) -> Iterator[str]:
    for item in judged(run)[:SHOWN]:
        met = words["unknown"] if item.met is None else words["met"] if item.met else words["unmet"]
        yield f"- {words['criterion']} ({met}): {line(item.criterion, CHARS)}"
    for text in run.plan.goal_understanding.constraints[:SHOWN] if run.plan else ():
        yield f"- {words['constraint']}: {line(text, CHARS)}"


def _subtask_details(run: Execution, words: Words) -> dict[int, str]:
    """What each subtask depended on, and how hard it was."""
    learned, found = learnings([run]), {}
    for number, part in enumerate(run.plan.subtasks if run.plan else ()):
        name = part.description or part.id
        estimate = learned.complexity.get(name)
        notes = [f"{words['complexity']}: {words[part.estimated_complexity]}"]
        if estimate and estimate.adjusted != estimate.estimated:
            notes[0] += f" → {words[estimate.adjusted]}"
        if part.dependencies:
            needs = learned.dependencies.get(name, part.dependencies)[:SHOWN]
            notes.append(f"{words['after']}: {line(', '.join(needs), CHARS)}")
        found[number] = f" ({'; '.join(notes)})"
    return found


def _execution_lines(one: _Told, words: Words, parts: _Parts) -> Iterator[str]:
    about = one.outline
    if about.successful_actions or about.failed_actions:
        yield f"- {words['actions'].format(about.successful_actions, about.failed_actions)}"
    if one.run is not None and parts.patterns:
        for item in outcomes(one.run).worked[:SHOWN]:
            yield f"  - {words['worked']}: {line(item.what, CHARS)}" + (f" ({line(item.tool, 80)})" * bool(item.tool))
    if about.key_failures and parts.reflections:
        yield f"- {words['failures']}:"
        for item in about.key_failures:
            text = ": ".join(filter(None, (line(item.what, CHARS), line(item.why, CHARS))))
            remedy = f" → {words['helped' if item.helped else 'try']}: {line(item.remedy, CHARS)}"
            solved = f" ({words['recovered']})" * item.recovered
            yield f"  - {text}{solved}{remedy if item.remedy else ''}"
    if one.run is not None:
        yield from _execution_details(one.run, words, parts)


def _execution_details(run: Execution, words: Words, parts: _Parts) -> Iterator[str]:
    if parts.patterns and run.tools:
        yield f"- {words['tools']}:"
        for use in run.tools[:SHOWN]:
            error = f": {line(use.last_error, 200)}" if use.last_error else ""
            yield f"  - {line(use.tool, 80)}: {words['uses'].format(use.successes, use.failures)}{error}"
    if parts.reflections:
        learned = learnings([run])
        for reason in learned.revision_reasons[:SHOWN]:
            yield f"- {words['revision']}: {line(reason, CHARS)}"
        for issue in learned.problems[:SHOWN]:
            cause = f" ({words['cause']}: {line(issue.root_cause, CHARS)})" if issue.root_cause else ""
            yield f"- {words['problem']}: {line(issue.issue, CHARS)}{cause}"


def _verification_lines(one: _Told, words: Words) -> Iterator[str]:
    about = one.outline
    if not about.verification_rounds:
        return
    passed = words["passed" if about.verification_passed else "not_passed"]
    yield f"- {words['rounds']}: {about.verification_rounds:,} ({passed})"
    for name, texts in (("found", about.issues_found), ("resolved", about.issues_resolved)):
        if texts:
            yield f"- {words[name]}:"
            yield from (f"  - {line(text, CHARS)}" for text in texts)
    if one.run is not None:
        learned = learnings([one.run])
        yield from (f"- {words['placeholder']}: {line(text, CHARS)}" for text in learned.placeholders[:SHOWN])
        yield from (f"- {words['work']}: {line(text, CHARS)}" for text in learned.additional_work[:SHOWN])


def _recommendations(told: list[Outline], words: Words, parts: _Parts) -> list[str]:
    """Of what is left to do, only the newest run knows; of what worked or failed, the newest run that tried it."""
    shown = {
        **dict.fromkeys(("finish",), parts.plans),
        **dict.fromkeys(("resolve", "fill"), parts.verifications),
        **dict.fromkeys(("remedy", "avoid"), parts.reflections),
        "reuse": parts.patterns,
    }
    chosen: dict[tuple[str, str], Advice] = {}
    for number, about in enumerate(told):
        known = {name for name, _ in chosen}
        for advice in about.recommendations:
            old = number > 0 and (advice.kind in ("finish", "resolve", "fill") or norm(advice.about) in known)
            if advice.about and not old:
                chosen.setdefault((norm(advice.about), advice.kind), advice)
    ordered = [item for kind in shown if shown[kind] for item in chosen.values() if item.kind == kind]
    return [f"- {_sentence(item, words)}" for item in ordered[:SHOWN]]


def _sentence(advice: Advice, words: Words) -> str:
    about, more = line(advice.about, CHARS), line(advice.more, CHARS)
    tail = words[f"{advice.kind}_more"].format(more) if more else ""
    return words[advice.kind].format(about) + tail
