"""What the client of the forges does when the network, the forge or an answer is not what it should be."""

import logging
import subprocess
import sys

import pytest

from orihon import TaskKey
from orihon.agent.sources import SeenComments
from orihon.errors import SourceError, UsageError
from support.code_hosts import Fault, Reply

GITHUB = pytest.mark.parametrize("desk", ["github"], indirect=True)
GITLAB = pytest.mark.parametrize("desk", ["gitlab"], indirect=True)
LIMIT = {"message": "API rate limit exceeded"}


class TestRateLimits:
    def test_retry_after_is_waited_for(self, desk):
        """A 429 with Retry-After is repeated after exactly that time."""
        desk.fake.add(1)
        desk.fake.faults.append(Fault(429, {"Retry-After": "7"}, LIMIT))
        assert desk.source.get(desk.key(1)).title == "A title"
        assert desk.slept == [7.0]

    def test_a_date_is_understood(self, desk):
        """Retry-After may be a date."""
        desk.fake.add(1)
        desk.fake.faults.append(Fault(429, {"Retry-After": "Thu, 15 Jan 2026 10:00:30 GMT"}, LIMIT))
        desk.source.get(desk.key(1))
        assert desk.slept == [30.0]

    @pytest.mark.parametrize("prefix", ["X-RateLimit-", "RateLimit-"])
    def test_the_reset_is_waited_for(self, desk, prefix):
        """Without Retry-After the time of the reset counts, and a 403 is a rate limit when nothing remains."""
        desk.fake.add(1)
        reset = int(desk.fake.time.timestamp()) + 20
        desk.fake.faults.append(Fault(403, {f"{prefix}Remaining": "0", f"{prefix}Reset": str(reset)}, LIMIT))
        desk.source.get(desk.key(1))
        assert desk.slept == [21.0]

    def test_a_secondary_limit_names_no_time(self, desk):
        """Then a minute is waited."""
        desk.fake.add(1)
        desk.fake.faults.append(Fault(403, {}, {"message": "You have exceeded a secondary rate limit."}))
        desk.source.get(desk.key(1))
        assert desk.slept == [60.0]

    def test_patience_ends(self, desk):
        """A limit that lasts longer than the patience is an error that says so, at once."""
        desk.fake.add(1)
        desk.fake.faults.append(Fault(429, {"Retry-After": "86400"}, LIMIT))
        with pytest.raises(SourceError, match="429") as caught:
            desk.source.get(desk.key(1))
        assert caught.value.retryable
        assert "rate limit" in caught.value.hint
        assert desk.slept == []

    def test_a_limit_without_end(self, desk):
        """Many limits one after the other end at some time."""
        desk.fake.add(1)
        desk.fake.faults.extend(Fault(429, {"Retry-After": "100"}, LIMIT) for _ in range(50))
        with pytest.raises(SourceError):
            desk.source.mark(desk.key(1), "done")
        assert sum(desk.slept) == 900
        desk.fake.faults.clear()

    def test_a_comment_waits_too(self, desk):
        """A limit means that nothing was done, so also a new comment is repeated."""
        thing = desk.fake.add(1)
        desk.fake.faults.append(Fault(403, {"Retry-After": "3"}, LIMIT, match="^POST"))
        desk.source.add_comment(desk.key(1), "Hello.")
        assert len(thing.notes) == 1
        assert desk.slept == [3.0]


class TestTrouble:
    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_the_forge_recovers(self, desk, status):
        """A few failures are waited out."""
        desk.fake.add(1)
        desk.fake.faults.extend(Fault(status) for _ in range(3))
        assert desk.source.get(desk.key(1)).title == "A title"
        assert desk.slept == [1.0, 2.0, 4.0]

    def test_the_forge_does_not_recover(self, desk):
        """Five failures are enough."""
        desk.fake.faults.extend(Fault(500) for _ in range(9))
        with pytest.raises(SourceError, match="with 500") as caught:
            desk.source.get(desk.key(1))
        assert caught.value.retryable
        assert len(desk.fake.faults) == 4
        desk.fake.faults.clear()

    @pytest.mark.parametrize(
        "raw", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", b"HTTP/1.1 2", b"\0\xff" * 40]
    )
    def test_cut_connections(self, desk, raw):
        """A connection that is cut before, inside or instead of an answer is tried again."""
        desk.fake.add(1)
        desk.fake.faults.append(Fault(raw=raw))
        assert desk.source.get(desk.key(1)).title == "A title"

    def test_nobody_is_there(self, desk):
        """An address without a server is one sentence."""
        source = desk.again(base_url="http://127.0.0.1:9")
        with pytest.raises(SourceError, match="cannot be reached") as caught:
            source.get(desk.key(1))
        assert caught.value.retryable

    @pytest.mark.parametrize(
        ("status", "hint"),
        [(401, "wrong or has expired"), (403, "not allowed to do this"), (404, "Check the key"), (410, "deleted")],
    )
    def test_refusals_have_a_way_out(self, desk, status, hint):
        """401, 403, 404 and 410 are not repeated and say what to do."""
        desk.fake.faults.append(Fault(status, {}, {"message": "Said by the forge."}))
        with pytest.raises(SourceError, match=f"with {status}: Said by the forge") as caught:
            desk.source.get(desk.key(1))
        assert (caught.value.status, caught.value.retryable) == (status, False)
        assert hint in caught.value.hint
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "body", [b"<html>log in</html>", b"", b"[1,2]", b'{"number": "x"}', b"{" * 5000, b'"\xff"']
    )
    def test_answers_that_are_none(self, desk, body):
        """A page of a proxy, or JSON of another kind, is an error and not a crash."""
        desk.fake.faults.append(Fault(200, {}, body))
        with pytest.raises(SourceError, match="unexpected content") as caught:
            desk.source.get(desk.key(1))
        assert "address" in caught.value.hint


class TestTheToken:
    @pytest.mark.parametrize("status", [301, 307, 308])
    def test_it_does_not_follow_to_another_host(self, desk, status, token):
        """A redirect elsewhere is refused before anything is sent there."""
        thief = type(desk.fake)()
        desk.fake.faults.append(Fault(status, {"Location": f"{thief.url}/steal"}))
        with pytest.raises(SourceError, match="another host") as caught:
            desk.source.get(desk.key(1))
        assert thief.requests == thief.problems == []
        thief.close()
        assert token not in str(caught.value) + caught.value.hint

    def test_renamed_repositories_are_followed(self, desk):
        """A redirect on the same host is followed."""
        desk.fake.add(1)
        path = "/repos/acme/shop/issues/1" if desk.name == "github" else "/api/v4/projects/5/issues/1"
        desk.fake.faults.append(Fault(301, {"Location": path}))
        assert desk.source.get(desk.key(1)).title == "A title"

    def test_lists_of_renamed_repositories_are_complete(self, desk):
        """A redirect that drops the query loses no page."""
        thing = desk.fake.add(1)
        for number in range(150):
            desk.fake.comment(thing, "bob", str(number))
        if desk.name == "github":
            key = TaskKey.github("acme", "old", issue=1)
            desk.fake.moved = ("/repos/acme/old", "/repos/acme/shop")
        else:
            key = TaskKey.gitlab("acme/tools", "old", issue=1)
            desk.fake.moved = ("/api/v4/projects/acme%2Ftools%2Fold", "/api/v4/projects/5")
        assert len(desk.source.get(key).comments) == 150

    def test_circles_end(self, desk):
        """Redirects without end are an error."""
        desk.fake.faults.extend(Fault(307, {"Location": "/again"}) for _ in range(9))
        with pytest.raises(SourceError, match="redirects"):
            desk.source.get(desk.key(1))
        desk.fake.faults.clear()

    def test_links_cannot_lead_elsewhere(self, desk):
        """The next page is asked for at the same place, whatever host its link names."""
        thing = desk.fake.add(1)
        for number in range(150):
            desk.fake.comment(thing, "bob", str(number))
        desk.fake.link_host = "http://thief.example.com"
        assert len(desk.source.get(desk.key(1)).comments) == 150

    def test_it_is_in_no_message(self, desk, token, caplog):
        """A forge that repeats the token gets it masked in errors and logs."""
        caplog.set_level(logging.DEBUG)
        desk.fake.faults.append(Fault(403, {}, {"message": f"bad token {token}"}))
        with pytest.raises(SourceError) as caught:
            desk.source.get(desk.key(1))
        assert token not in f"{caught.value!r} {caught.value} {caught.value.__context__!r} {desk.source.__dict__}"
        assert token not in repr(desk.settings)

    def test_it_is_sent(self, desk, token):
        """Every request carries it, and nothing else does."""
        desk.fake.add(1)
        desk.source.get(desk.key(1))
        for title, arguments, query, body, headers in desk.fake.requests:
            assert headers["Authorization"] == f"Bearer {token}"
            assert token not in f"{title} {arguments} {query} {body}"


@GITHUB
class TestGitHub:
    def test_a_search_that_lags_behind(self, desk):
        """What the index still shows as waiting but is done already is not run again."""
        desk.fake.add(1, labels=["coding agent done"])
        desk.fake.add(2)
        desk.fake.stale[1] = ["coding agent"]
        assert [item.key for item in desk.source.find()] == [desk.key(2)]

    def test_labels_in_another_case(self, desk):
        """GitHub does not tell `Coding Agent` from `coding agent`, and neither do we."""
        thing = desk.fake.add(1, labels=["Coding Agent"])
        desk.source.mark(desk.key(1), "processing")
        assert thing.labels == ["coding agent processing"]

    @pytest.mark.parametrize(
        ("body", "number"),
        [
            ("closes acme/shop#27", 27),
            ("Resolves https://github.com/Acme/Shop/issues/27.", 27),
            ("closes evil/secret#27", None),
            ("closes https://github.com/evil/secret/issues/27", None),
            ("<!-- closes #27 -->", None),
            ("`closes #27`", None),
            ("```\ncloses #27\n```\nfixed #28", 28),
            ("encloses #27, see #28", None),
            ("closes #0, closes #" + "9" * 40, None),
            ("<!--" * 20_000, None),
        ],
    )
    def test_which_words_close(self, desk, body, number):
        """Only an issue of the same repository, in words that people see."""
        desk.fake.add(40, pull=True, body=body)
        assert desk.source.find_linked(desk.key(40, pull=True)) == (desk.key(number) if number else None)

    def test_reviews_are_comments_too(self, desk):
        """Remarks on lines and the words of a review count, in the order of their times; those of bots do not."""
        thing = desk.fake.add(40, pull=True)
        key = desk.key(40, pull=True)
        desk.fake.comment(thing, "ann", "Close.")
        remark = desk.fake.comment(thing, "rita", "Off by one.", where="remarks")
        desk.fake.comment(thing, "lint[bot]", "Style.", where="remarks")
        desk.fake.comment(thing, "rita", "Please mend.", where="reviews")
        desk.fake.comment(thing, "rita", "", where="reviews")
        desk.fake.comment(thing, "eve", "not sent yet", where="reviews").updated = ""
        desk.fake.comment(thing, "ann", "Thanks.")
        bodies = ["Close.", "On login.py, line 7:\nOff by one.", "Please mend.", "Thanks."]
        assert [one.body for one in desk.source.get(key).comments] == bodies
        seen = SeenComments()
        assert len(seen.take_new(desk.source.get(key).comments)) == 4
        desk.fake.rewrite(remark, "Off by two.")
        fresh = seen.take_new(desk.source.list_comments(key, seen.since))
        assert [one.body for one in fresh] == ["On login.py, line 7:\nOff by two."]

    def test_an_author_who_left(self, desk):
        """GitHub calls them ghost."""
        desk.fake.add(1, author="")
        assert desk.source.get(desk.key(1)).author == "ghost"


@GITLAB
class TestGitLab:
    @pytest.mark.parametrize("line", ["/close", "  /merge", "/assign @eve", "/label ~x"])
    def test_quick_actions_are_defused(self, desk, line):
        """What a model writes is never carried out as a command."""
        thing = desk.fake.add(1)
        made = desk.source.add_comment(desk.key(1), f"Done.\n{line}\nSee /usr/bin/env")
        desk.source.edit_comment(desk.key(1), made, f"{line}\n/usr/bin/env")
        lines = thing.notes[0].body.split("\n")
        assert lines[0].lstrip().startswith("\\/")
        assert lines[1] == "/usr/bin/env"

    def test_words_of_the_search(self, desk):
        """`query` is GitLab's search."""
        desk.fake.add(1, title="blue")
        desk.fake.add(2, title="red")
        assert [item.key for item in desk.again(query="red").find()] == [desk.key(2)]


def test_the_fakes_are_held_to_their_descriptions(desk):
    """A request or an answer that is not described is noticed."""
    desk.fake.add(1)
    desk.fake.reply = lambda *_: Reply(200, [{"id": "wrong"}])
    with pytest.raises(SourceError):
        desk.source.get(desk.key(1))
    assert any("answer" in problem for problem in desk.fake.problems)
    desk.fake.problems.clear()
    with pytest.raises(SourceError):
        desk.source.client.send("POST", "/nowhere", {"x": 1}, idempotent=False)
    assert "not described" in desk.fake.problems[0]
    desk.fake.problems.clear()


def test_the_extra_is_named_where_it_is_missing(desk, monkeypatch):
    """Without httpx2 a forge says what to install."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match="needs httpx2") as caught:
        desk.again()
    assert "orihon[agent]" in caught.value.hint


def test_nothing_heavy_is_loaded_before_it_is_used():
    """Opening a source loads no HTTP library."""
    script = (
        "import sys; from orihon.agent import progress_comment, user_settings; "
        "from orihon.agent.sources import github, gitlab, local; "
        "print(sorted({'httpx2', 'httpcore2', 'ssl', 'asyncio', 'yaml'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
