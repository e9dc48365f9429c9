"""GitHub and GitLab over HTTP: finding, labels, comments, stops and links."""

import threading

import pytest

from orihon import TaskKey
from orihon.agent.sources import SeenComments, open_source
from orihon.errors import SettingsError, SourceError, UsageError
from orihon.settings.schema import Settings
from orihon.settings.section import Secret, replace
from support.code_hosts import Fault

OUTCOMES = ["queued", "processing", "done", "failed", "paused", "stopped"]
LABELS = {"queued": "coding agent"} | {one: f"coding agent {one}" for one in OUTCOMES[1:]}


class TestFinding:
    def test_open_items_with_label_and_assignee(self, desk):
        """Only what is open, labelled and assigned to the bot asks for work, issues and requests alike."""
        desk.fake.add(1, title="Fix it", labels=["bug", "coding agent"])
        desk.fake.add(2, labels=["bug"])
        desk.fake.add(3, assignees=["alice"])
        desk.fake.add(4, state="closed")
        desk.fake.add(5, pull=True)
        found = list(desk.source.find())
        assert [item.key for item in found] == [desk.key(1), desk.key(5, pull=True)]
        assert (found[0].title, found[0].author, found[0].assignees) == ("Fix it", "alice", ("the-bot",))
        assert found[0].labels == ("bug", "coding agent")
        assert found[0].url.endswith("issues/1")

    @pytest.mark.slow
    def test_more_than_one_page(self, desk):
        """250 items are found, each once, although the forge gives 100 at a time and labels change meanwhile."""
        for number in range(1, 251):
            desk.fake.add(number)
        found = []
        for item in desk.source.find():
            desk.source.mark(item.key, "processing")
            found.append(item.key)
        assert found == [desk.key(number) for number in range(1, 251)]
        assert list(desk.source.find()) == []

    def test_without_a_bot_the_own_items_count(self, desk):
        """Where the bot has no account, what the owner of the token wrote is found, whoever is assigned."""
        desk.fake.add(1, author="me", assignees=[])
        desk.fake.add(2, author="alice")
        assert [item.key for item in desk.again(bot_name="").find()] == [desk.key(1)]

    def test_another_owner_is_left_out(self, desk):
        """The owner of the settings limits what is found."""
        desk.fake.add(1)
        assert list(desk.again(owner="other").find()) == []

    def test_one_broken_item_does_not_hide_the_others(self, desk):
        """What cannot be read is left out with a warning."""
        desk.fake.add(1)
        desk.fake.add(2)
        desk.fake.faults.append(Fault(404, {}, {"message": "gone"}, match=r"issues/1/(comments|notes)$"))
        assert [item.key for item in desk.source.find()] == [desk.key(2)]

    def test_a_forge_in_trouble_ends_the_search(self, desk):
        """When everything would fail, nothing is pretended."""
        desk.fake.add(1)
        desk.fake.faults.extend(Fault(503, match="(comments|notes)$") for _ in range(9))
        with pytest.raises(SourceError, match="503") as caught:
            list(desk.source.find())
        assert caught.value.retryable
        desk.fake.faults.clear()

    def test_hostile_bodies_survive(self, desk):
        """NUL, control characters and no body at all do no harm."""
        desk.fake.add(1, title="a\0b\x1b[31m", body="\0\x07 body \u202e", author="alice")
        desk.fake.add(2, body=None)
        first, second = desk.source.find()
        assert "\0" not in first.title + first.body
        assert second.body == ""
        assert "title above is the request" in desk.source.render_prompt(second)

    def test_a_huge_answer_is_refused(self, desk, monkeypatch):
        """An answer that would fill the memory ends in an error, and the next one is read."""
        monkeypatch.setattr("orihon.agent.sources.rest_client.MAX_ANSWER_BYTES", 50_000)
        thing = desk.fake.add(1, body="x" * 100_000)
        with pytest.raises(SourceError, match="more than 50,000 bytes"):
            desk.source.get(desk.key(1))
        thing.body = "short"
        assert desk.source.get(desk.key(1)).body == "short"

    def test_what_is_not_there(self, desk):
        """A wrong number is one sentence with a way out."""
        with pytest.raises(SourceError, match="404") as caught:
            desk.source.get(desk.key(99))
        assert caught.value.status == 404
        assert "Check the key" in caught.value.hint


class TestLabels:
    @pytest.mark.parametrize("before", OUTCOMES)
    @pytest.mark.parametrize("after", OUTCOMES)
    def test_every_transition(self, desk, before, after):
        """Each outcome gives exactly its own label; those of others stay; a request to run again stays too."""
        thing = desk.fake.add(1, labels=["bug", LABELS[before], "help wanted"])
        desk.source.mark(desk.key(1), after)
        kept = ["coding agent"] if before == "queued" and after not in {"queued", "processing"} else []
        assert sorted(thing.labels) == sorted(["bug", "help wanted", *kept, LABELS[after]])

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_marking_twice_is_marking_once(self, desk, outcome):
        """The second time nothing is sent."""
        desk.fake.add(1)
        desk.source.mark(desk.key(1), outcome)
        sent = len([title for title in desk.fake.titles() if not title.startswith("GET")])
        desk.source.mark(desk.key(1), outcome)
        assert len([title for title in desk.fake.titles() if not title.startswith("GET")]) == sent

    def test_a_whole_life(self, desk):
        """Queued, processing, paused, processing, done: never two of our labels at the end of a step."""
        thing = desk.fake.add(1, pull=True, labels=["bug", "coding agent"])
        for outcome in ("processing", "paused", "processing", "done"):
            desk.source.mark(desk.key(1, pull=True), outcome)
            assert thing.labels == ["bug", LABELS[outcome]]

    def test_labels_of_others_in_between(self, desk):
        """A label that somebody adds while ours change is kept, and one of ours that somebody removed is no error."""
        thing = desk.fake.add(1)

        def meanwhile(title):
            if not title.startswith("GET") and "urgent" not in thing.labels:
                thing.labels.append("urgent")
                thing.labels.remove("coding agent")

        desk.fake.before = meanwhile
        desk.source.mark(desk.key(1), "processing")
        assert sorted(thing.labels) == ["coding agent processing", "urgent"]

    def test_asking_again_during_the_run(self, desk):
        """Who puts the label on again while a task runs gets another run afterwards."""
        thing = desk.fake.add(1)
        desk.source.mark(desk.key(1), "processing")
        thing.labels.append("coding agent")
        desk.source.mark(desk.key(1), "done")
        assert sorted(thing.labels) == ["coding agent", "coding agent done"]
        assert [item.key for item in desk.source.find()] == [desk.key(1)]

    def test_two_workers_at_once(self, desk):
        """Many marks at the same time end in the same labels as one."""
        thing = desk.fake.add(1, labels=["bug", "coding agent"])
        workers = [threading.Thread(target=desk.source.mark, args=(desk.key(1), "processing")) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert thing.labels == ["bug", "coding agent processing"]

    def test_a_lost_answer_is_mended_by_the_next_attempt(self, desk):
        """A label change that was done but not answered is repeated without harm."""
        thing = desk.fake.add(1)
        desk.fake.faults.append(Fault(502, match="^(POST|PUT)", after=True))
        desk.fake.faults.append(Fault(match="^DELETE", after=True))
        desk.source.mark(desk.key(1), "processing")
        assert thing.labels == ["coding agent processing"]
        desk.fake.faults.clear()


class TestComments:
    def test_only_those_of_people(self, desk):
        """The bot's own (in any case), those of other bots, of the system and empty ones are left out."""
        thing = desk.fake.add(1)
        desk.fake.comment(thing, "bob", "Please.")
        desk.fake.comment(thing, "The-BOT", "Working.")
        desk.fake.comment(thing, "bob", "  \n ")
        if desk.name == "github":
            desk.fake.comment(thing, "dependabot[bot]", "Bump.")
        else:
            desk.fake.comment(thing, "alice", "assigned to @the-bot", system=True)
            desk.fake.comment(thing, "project_5_bot_abc", "Bump.")
        assert [(one.author, one.body) for one in desk.source.get(desk.key(1)).comments] == [("bob", "Please.")]
        assert [one.body for one in desk.source.list_comments(desk.key(1), "2026-01-01T00:00:00.000000Z")] == [
            "Please."
        ]

    def test_all_pages(self, desk):
        """250 comments are 250 comments, in order."""
        thing = desk.fake.add(1)
        for number in range(250):
            desk.fake.comment(thing, "bob", f"number {number}")
        assert [one.body for one in desk.source.get(desk.key(1)).comments] == [f"number {n}" for n in range(250)]

    def test_say_and_edit(self, desk):
        """A comment is written, changed in place, and known as ours."""
        thing = desk.fake.add(1)
        made = desk.source.add_comment(desk.key(1), "Hello.")
        desk.source.edit_comment(desk.key(1), made, "Changed.")
        assert [note.body.split("\n")[0] for note in thing.notes] == ["Changed."]
        assert str(thing.notes[0].id) == made
        assert desk.source.get(desk.key(1)).comments == ()

    def test_ours_where_bot_and_user_are_one(self, desk):
        """With the account of a person, what Orihon wrote is still told from what the person wrote."""
        thing = desk.fake.add(1, author="me")
        desk.fake.posts_as = "me"
        source = desk.again(bot_name="")
        source.add_comment(desk.key(1), "I am at it.")
        desk.fake.comment(thing, "me", "Faster!")
        assert [one.body for one in source.get(desk.key(1)).comments] == ["Faster!"]

    @pytest.mark.parametrize("fault", [Fault(502, after=True), Fault(after=True), Fault(503), Fault()])
    def test_a_comment_is_written_once(self, desk, fault):
        """Whether the answer or the request was lost, there is one comment in the end."""
        thing = desk.fake.add(1)
        fault.match = "^POST"
        desk.fake.faults.append(fault)
        made = desk.source.add_comment(desk.key(1), "Once.")
        assert [str(note.id) for note in thing.notes] == [made]

    def test_what_goes_out_holds_no_secret_and_fits(self, desk, token):
        """The token and what looks like one are masked, and a long text loses its middle."""
        thing = desk.fake.add(1)
        desk.source.add_comment(
            desk.key(1), f"The token is {token}; AKIAIOSFODNN7EXAMPLX. " + "x" * 300_000 + " the end"
        )
        assert token not in thing.notes[0].body
        assert "characters left out" in thing.notes[0].body
        assert len(thing.notes[0].body) < (65_536 if desk.name == "github" else 1_000_000)

    def test_new_and_edited_comments_arrive_once(self, desk):
        """What is written or changed during a run arrives; the same words do not arrive twice, also after a pause."""
        thing = desk.fake.add(1)
        first = desk.fake.comment(thing, "bob", "one")
        seen = SeenComments()
        seen.take_new(desk.source.get(desk.key(1)).comments)

        def news():
            return [one.body for one in seen.take_new(desk.source.list_comments(desk.key(1), seen.since))]

        assert news() == []
        desk.source.add_comment(desk.key(1), "mine")
        desk.fake.comment(thing, "bob", "two")
        desk.fake.time = desk.fake.time.replace(second=desk.fake.time.second - 1)  # the next has the same second
        desk.fake.comment(thing, "eve", "three")
        assert news() == ["two", "three"]
        desk.fake.rewrite(first, "one, but better")
        seen = SeenComments(seen.state())
        assert news() == ["one, but better"]
        assert news() == []

    def test_a_comment_that_is_gone(self, desk):
        """Editing what somebody deleted says so."""
        desk.fake.add(1)
        with pytest.raises(SourceError) as caught:
            desk.source.edit_comment(desk.key(1), "4711", "text")
        assert caught.value.status == 404

    def test_a_comment_id_is_a_number(self, desk):
        """An id from elsewhere cannot change the path."""
        with pytest.raises(UsageError, match="not the id"):
            desk.source.edit_comment(desk.key(1), "../../1", "text")


class TestStops:
    def test_unassigned_means_stop(self, desk):
        """Once the bot is taken off, the work is not wanted any more."""
        thing = desk.fake.add(1)
        assert desk.source.is_wanted(desk.key(1))
        thing.assignees = ["alice"]
        assert not desk.source.is_wanted(desk.key(1))

    def test_assigned_when_it_was_read(self, desk):
        """What `get` saw counts."""
        thing = desk.fake.add(1)
        desk.source.get(desk.key(1))
        thing.assignees = []
        assert not desk.source.is_wanted(desk.key(1))

    def test_never_assigned_is_no_stop(self, desk):
        """A task that somebody started on an item of others goes on."""
        desk.fake.add(1, assignees=["alice"])
        assert desk.source.is_wanted(desk.key(1))
        assert desk.source.is_wanted(desk.key(1))
        assert desk.again(bot_name="").is_wanted(desk.key(1))

    def test_a_resumed_task_knows_better(self, desk):
        """A new process is told that the bot was assigned when the task began."""
        desk.fake.add(1, assignees=[])
        assert not desk.again().is_wanted(desk.key(1), was_assigned=True)

    @pytest.mark.parametrize("fault", [Fault(404, {}, {"message": "no"}), Fault(401), Fault(429)])
    def test_errors_mean_go_on(self, desk, fault):
        """A forge that does not answer stops nothing, and is not waited for."""
        thing = desk.fake.add(1)
        assert desk.source.is_wanted(desk.key(1))
        thing.assignees = []
        desk.fake.faults.append(fault)
        assert desk.source.is_wanted(desk.key(1))
        assert sum(desk.slept) <= 5
        assert not desk.source.is_wanted(desk.key(1))


class TestLinks:
    def test_issue_and_request_know_each_other(self, desk):
        """The request that closes an issue is found from it, and the issue from the request."""
        desk.fake.add(27)
        desk.fake.add(40, pull=True, author="the-bot", body="Closes #27\n\nAnd more.")
        request = desk.key(40, pull=True)
        assert desk.source.find_linked(desk.key(27)) == request
        assert desk.source.find_linked(request) == desk.key(27)

    def test_nothing_is_linked(self, desk):
        """An issue without a request has no link, and the other way round."""
        desk.fake.add(27)
        desk.fake.add(40, pull=True, body="No number.")
        assert desk.source.find_linked(desk.key(27)) is None
        assert desk.source.find_linked(desk.key(40, pull=True)) is None

    def test_the_right_one_of_several(self, desk):
        """Given up ones do not count; the bot's own goes before those of others, the newest before older ones."""
        desk.fake.add(27)
        desk.fake.add(41, pull=True, author="the-bot", body="Fixes #27")
        desk.fake.add(42, pull=True, author="the-bot", body="fixes: #27", state="closed", merged=True)
        desk.fake.add(43, pull=True, author="the-bot", body="Fixes #27", state="closed")
        desk.fake.add(44, pull=True, author="eve", body="Closes #27")
        assert desk.source.find_linked(desk.key(27)) == desk.key(42, pull=True)


class TestUsers:
    def test_the_author_asked(self, desk):
        """Who wrote the issue is the user."""
        desk.fake.add(1, author="alice")
        assert desk.source.find_user(desk.source.get(desk.key(1))) == "alice"

    @pytest.mark.parametrize(
        ("reviewers", "assignees", "user"),
        [(["rita", "ron"], ["the-bot"], "rita"), ([], ["the-bot", "anna"], "anna"), ([], ["the-bot"], "alice")],
    )
    def test_behind_the_bot_stands_somebody(self, desk, reviewers, assignees, user):
        """Of a request that the bot opened, the reviewer, the assignee or the author of the issue is the user."""
        desk.fake.add(27, author="alice")
        desk.fake.add(40, pull=True, author="the-bot", body="Closes #27", reviewers=reviewers, assignees=assignees)
        assert desk.source.find_user(desk.source.get(desk.key(40, pull=True))) == user

    def test_nobody_can_be_named(self, desk):
        """Then the user is empty, and the general settings hold."""
        desk.fake.add(40, pull=True, author="the-bot", body="On its own.")
        assert desk.source.find_user(desk.source.get(desk.key(40, pull=True))) == ""


class TestOpening:
    @pytest.mark.parametrize("name", ["github", "gitlab"])
    def test_a_token_is_needed(self, name):
        """Without a token nothing is opened, and the message says where to put one."""
        with pytest.raises(SettingsError, match="token` is not set") as caught:
            open_source(name, Settings())
        assert f"{name.upper()}_TOKEN" in caught.value.hint

    @pytest.mark.parametrize("url", ["ftp://x", "https://", "https://me:pass@host", "host", "https://h/?token=x"])
    def test_an_address_is_checked(self, url):
        """Only http and https, and no credentials inside."""
        settings = replace(Settings(), {"github.token": Secret("t" * 20), "github.base_url": url})
        with pytest.raises(SettingsError, match="base_url"):
            open_source("github", settings)

    @pytest.mark.parametrize("token", ["two words", "line\nbreak", "umläut", "  "])
    def test_a_token_that_cannot_be_one(self, token):
        """What no header can hold is refused without being shown."""
        with pytest.raises(SettingsError) as caught:
            open_source("gitlab", replace(Settings(), {"gitlab.token": Secret(token)}))
        assert token.strip() not in str(caught.value) or not token.strip()

    def test_other_sources_do_not_exist(self):
        """A wrong name lists the right ones."""
        with pytest.raises(UsageError, match="no source") as caught:
            open_source("jira", Settings())
        assert "gitlab" in caught.value.hint


def test_keys_by_project_id(desk):
    """GitLab's project id names the same issue as its path."""
    if desk.name == "gitlab":
        desk.fake.add(1, title="By number")
        assert desk.source.get(TaskKey.gitlab(project_id=5, issue=1)).title == "By number"
