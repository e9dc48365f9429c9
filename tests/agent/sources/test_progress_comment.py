"""The one comment that shows how far a task is."""

from functools import partial

import pytest

from orihon.agent.progress_comment import ProgressComment, Report, render_report
from orihon.agent.sources import local
from orihon.errors import SourceError
from orihon.ingest import Sanitiser
from orihon.settings.schema import ProgressComment as ProgressSettings
from support.code_hosts import Fault

Local = partial(local.Local, sanitiser=Sanitiser())


class Clock:
    def __init__(self):
        self.now, self.slept = 100.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(desk, clock):
    """A progress comment on issue 1 of a forge."""
    desk.fake.add(1)

    def make(**options):
        settings = ProgressSettings(**options.pop("settings", {}))
        return ProgressComment(
            desk.source, desk.key(1), settings, clock=clock, sleep=clock.sleep, min_seconds=10, **options
        )

    return make


def notes(desk):
    return next(iter(desk.fake.things.values())).notes


def writes(desk):
    return len(desk.fake.titles("POST")) + len(desk.fake.titles("PATCH")) + len(desk.fake.titles("PUT"))


def test_one_comment_edited_in_place(desk, make, clock):
    """Many reports are one comment, edited no more often than allowed; the last one is always there."""
    progress = make()
    for number in range(100):
        progress.show(Report(status="running", steps=(("work", True),) * number), f"did {number}")
        clock.now += 1
    assert writes(desk) == 10
    progress.finish(Report(status="completed", steps=(("work", True),) * 100), "the end")
    assert writes(desk) == 11
    [note] = notes(desk)
    assert str(note.id) == progress.comment_id
    assert "**completed** · 100 of 100 actions" in note.body
    assert "did 99" in note.body
    assert "the end" in note.body


def test_what_did_not_change_is_not_sent(desk, make, clock):
    """The same report twice is one edit."""
    progress = make()
    for _ in range(5):
        progress.show(Report(status="running"))
        clock.now += 100
    progress.finish()
    assert writes(desk) == 1


def test_a_deleted_comment_is_made_again(desk, make, clock):
    """Somebody tidied up: the next report stands in a new comment, which is edited from then on."""
    progress = make()
    progress.show(Report(status="one"))
    first = progress.comment_id
    notes(desk).clear()
    clock.now += 10
    progress.show(Report(status="two"))
    clock.now += 10
    progress.show(Report(status="three"))
    assert progress.comment_id != first
    assert [note.body.split("\n")[0] for note in notes(desk)] == ["**three**"]


def test_a_resumed_task_goes_on_with_its_comment(desk, make, clock):
    """Comment and history survive."""
    progress = make()
    progress.show(Report(status="one"), "first entry")
    again = make(state=progress.state())
    clock.now += 10
    again.show(Report(status="two"), "second entry")
    [note] = notes(desk)
    assert "first entry" in note.body
    assert "second entry" in note.body
    assert again.comment_id == progress.comment_id


@pytest.mark.parametrize("fault", [Fault(403, {}, {"message": "no"}), Fault(401), Fault(422, {}, {"message": "bad"})])
def test_failures_stop_nothing(desk, make, clock, fault):
    """A forge that refuses is logged, tried again later and less often."""
    progress = make()
    desk.fake.faults.append(fault)
    progress.show(Report(status="one"))
    clock.now += 10
    progress.show(Report(status="two"))
    assert notes(desk) == []
    clock.now += 10
    progress.show(Report(status="three"))
    assert len(notes(desk)) == 1


def test_the_end_is_tried_several_times(desk, make, clock):
    """A forge in trouble at the end is waited for, a little."""
    progress = make()
    progress.show(Report(status="one"))
    desk.fake.faults.extend(Fault(503, match="^(PATCH|PUT)") for _ in range(7))
    progress.finish(Report(status="completed"))
    assert notes(desk)[0].body.startswith("**completed**")
    assert clock.slept
    desk.fake.faults.clear()


def test_the_end_cannot_be_written(desk, make, clock):
    """Then the run ends all the same."""
    progress = make()
    progress.show(Report(status="one"))
    desk.fake.faults.extend(Fault(503) for _ in range(99))
    progress.finish(Report(status="completed"))
    assert sum(clock.slept) == 14
    desk.fake.faults.clear()


def test_it_can_be_switched_off(desk, make):
    """Nothing is written."""
    progress = make(settings={"enabled": False})
    progress.show(Report(status="one"), "x")
    progress.finish()
    assert desk.fake.requests == []


def test_the_newest_entries_are_kept(make):
    """As many as the settings say."""
    progress = make(settings={"max_history_entries": 3})
    for number in range(10):
        progress.show(entry=f"entry {number}")
    assert [entry.split("entry ")[1] for entry in progress.state()["entries"]] == ["7", "8", "9"]


def test_the_whole_comment():
    """Status, phases, last words, steps and history."""
    report = Report(
        title="Task 1b4e28ba",
        status="running",
        phase="execution",
        text="I found it.\nIt was the cache.",
        calls=7,
        steps=(("look", True), ("mend", False)),
    )
    assert render_report(report, ["`10:45:00` looked"]) == (
        "## Task 1b4e28ba\n\n**running** · 1 of 2 actions · 7 model calls\n\n"
        "✅ planning → ▶️ execution → verification\n\n"
        "> I found it.\n> It was the cache.\n\n- [x] look\n- [ ] mend\n\n"
        "<details><summary>History (1)</summary>\n\n- `10:45:00` looked\n\n</details>"
    )


def test_hostile_and_huge_texts_stay_inside():
    """No entry can end the section, and the comment stays short enough for any forge."""
    report = Report(status="a\n</details>\n# b", steps=(("</details>" + "x" * 9000, True),) * 500, text="y" * 100_000)
    text = render_report(report, ["z" * 1000] * 500)
    assert text.count("</details>") == 1
    assert len(text) < 65_000


def test_it_works_on_files_too(tmp_path):
    """A local issue has its progress beside it."""
    (tmp_path / "a.md").write_text("# A", encoding="utf-8")
    source = Local(tmp_path / "a.md")
    key = next(source.find()).key
    progress = ProgressComment(source, key, min_seconds=0)
    progress.show(Report(status="one"))
    progress.finish(Report(status="two"))
    with pytest.raises(SourceError):
        source.edit_comment(key, "2", "x")
    assert progress.comment_id == "1"
