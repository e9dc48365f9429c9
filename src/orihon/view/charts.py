"""Shapes of the charts, in numbers: the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from orihon.view.calls import CallFacts

WIDTH, HEIGHT = 1000.0, 260.0
SOURCES = (
    *("system", "sticky files", "inherited", "note", "summary", "snapshot", "marks", "user", "assistant", "tool"),
    "unknown",
)


class Area(msgspec.Struct, frozen=True):
    """The part of a source in a stacked chart."""

    source: str
    path: str


class Column(msgspec.Struct, frozen=True):
    """The place of one call, to click."""

    x: float
    width: float
    facts: CallFacts
    cached: float | None  # the share of the input that the provider had cached


class Timeline(msgspec.Struct, frozen=True):
    """A stacked chart of the windows of a task."""

    areas: list[Area]
    limit: str  # the path of the line
    columns: list[Column]
    folds: list[tuple[float, int]]  # where, and the call
    top: int  # the tokens at the upper edge
    steps: list[tuple[float, int]]  # lines across, with their tokens


def timeline(points: Sequence[CallFacts], folded: Iterable[int]) -> Timeline:
    """Return the chart of some calls, with marks at those that were folded."""
    top = max([max(point.tokens, point.limit, _total(point)) for point in points], default=0) or 1
    width = WIDTH / max(1, len(points))
    columns = [
        Column(round(place * width, 2), round(width, 2), point, _cached(point)) for place, point in enumerate(points)
    ]
    names = list(dict.fromkeys([*SOURCES, *(name for point in points for name in point.sources)]))
    bottom = [0.0] * len(points)
    areas = []
    for name in names:
        sizes = [_sources(point).get(name, 0) for point in points]
        if any(sizes):
            upper = [low + size for low, size in zip(bottom, sizes, strict=True)]
            areas.append(Area(name, _band(bottom, upper, width, top)))
            bottom = upper
    marks = []
    for call in folded:
        place = next((at for at, point in enumerate(points) if point.number >= call), None)
        if place is not None:
            marks.append((round((place + 0.5) * width, 2), call))
    limits = [point.limit for point in points]
    return Timeline(areas, _steps(limits, width, top) if any(limits) else "", columns, marks, top, _lines(top))


def sparkline(values: Sequence[float], width: float = 96, height: float = 20) -> str:
    """Return the path of a small line; a value of 1 is at the top."""
    if not values:
        return ""
    step = width / max(1, len(values) - 1)
    shown = [
        (round(place * step, 1), round(height - 1 - min(1.0, value) * (height - 2), 1))
        for place, value in enumerate(values)
    ]
    return "M" + "L".join(f"{x},{y}" for x, y in (shown if len(shown) > 1 else [*shown, (width, shown[0][1])]))


def _sources(point: CallFacts) -> dict[str, int]:
    """Return the tokens by source; of a task from before they were recorded, all that the provider counted."""
    return point.sources or {"unknown": point.usage.input_tokens if point.usage else 0}


def _total(point: CallFacts) -> int:
    return sum(_sources(point).values())


def _cached(point: CallFacts) -> float | None:
    usage = point.usage
    return usage.cache_read_tokens / usage.input_tokens if usage and usage.input_tokens else None


def _band(bottom: Sequence[float], upper: Sequence[float], width: float, top: float) -> str:
    """Return the path between two lines of steps."""
    there = [f"{place * width:.1f},{_y(value, top)}H{(place + 1) * width:.1f}" for place, value in enumerate(upper)]
    back = [
        f"{(place + 1) * width:.1f},{_y(value, top)}H{place * width:.1f}"
        for place, value in reversed(list(enumerate(bottom)))
    ]
    return "M" + "L".join([*there, *back]) + "Z"


def _steps(values: Sequence[float], width: float, top: float) -> str:
    return "M" + "L".join(
        f"{at * width:.1f},{_y(value, top)}H{(at + 1) * width:.1f}" for at, value in enumerate(values)
    )


def _y(value: float, top: float) -> str:
    return f"{HEIGHT - HEIGHT * value / top:.1f}"


def _lines(top: int) -> list[tuple[float, int]]:
    """Return round numbers of tokens below the top, at most five."""
    size = 10 ** max(0, len(str(top)) - 1)
    step = next(part for part in (size // 5 or 1, size // 2 or 1, size, 2 * size) if top / part <= 5)  # noqa: PLR2004
    return [(float(_y(value, top)), value) for value in range(step, top + 1, step)]
