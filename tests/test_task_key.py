"""A task key names one thing, and nothing hostile gets into it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon.errors import UsageError
from orihon.task_key import TaskKey

segments = st.from_regex(r"[A-Za-z0-9_.\-]{1,20}", fullmatch=True).filter(lambda text: text not in {".", ".."})
numbers = st.integers(1, 10**18)
groups = st.lists(segments, min_size=1, max_size=4).map("/".join)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True)
keys = st.one_of(
    st.builds(lambda owner, repo, n: TaskKey.github(owner, repo, issue=n), segments, segments, numbers),
    st.builds(lambda owner, repo, n: TaskKey.github(owner, repo, pull_request=n), segments, segments, numbers),
    st.builds(lambda owner, repo, n: TaskKey.gitlab(owner, repo, merge_request=n), groups, segments, numbers),
    st.builds(lambda project, n: TaskKey.gitlab(project_id=project, issue=n), st.integers(1, 2**53 - 1), numbers),
    st.builds(lambda name, workspace: TaskKey.local(name, workspace=workspace), names, st.just("") | segments),
    st.builds(TaskKey.session, st.text(min_size=1)),
)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (TaskKey.github("acme", "shop", issue=27), "github/acme/shop/issue/27"),
        (TaskKey.github("acme", "shop", pull_request="9"), "github/acme/shop/pull_request/9"),
        (TaskKey.gitlab("group/sub", "shop", merge_request=3), "gitlab/group/sub/shop/merge_request/3"),
        (TaskKey.gitlab(project_id=1234, issue=5), "gitlab/1234/issue/5"),
        (TaskKey.local("fix-login"), "local/issue/fix-login"),
        (TaskKey.local("fix-login", workspace="shop"), "local/shop/issue/fix-login"),
        (TaskKey.github("Acme", ".github", issue=1), "github/acme/.github/issue/1"),
        (TaskKey.session("user:1/abc #2"), "session/user:1/abc #2"),
        (TaskKey.session("会話　十二"), "session/会話　十二"),
        (TaskKey.session("あ" * 300), "session/" + "あ" * 300),
        (TaskKey.session("github/acme/shop/issue/27"), "session/github/acme/shop/issue/27"),
        (TaskKey.session(" 50%\n\x1b[31m\u202e "), "session/%2050%25%0A%1B[31m%E2%80%AE%20"),
        (TaskKey.session("\ud800"), "session/%ED%A0%80"),
    ],
)
def test_the_canonical_string(key, text):
    """Each source has one way to be written."""
    assert str(key) == text
    assert TaskKey.parse(text) == key


@given(keys)
def test_the_string_is_read_back(key):
    """Parsing the string gives an equal key with an equal string, and the JSON form does too."""
    again = TaskKey.parse(str(key))
    assert again == key
    assert hash(again) == hash(key)
    assert str(again) == str(key)
    assert msgspec.json.decode(msgspec.json.encode(key), type=TaskKey) == key


@given(keys, keys)
def test_different_things_have_different_strings(one, other):
    """Two keys are equal if and only if source, place, type and id are, case aside."""

    def identity(key):
        return key.task_source, key.owner.lower(), key.repo.lower(), key.project_id, key.task_type, key.task_id

    assert (str(one) == str(other)) == (identity(one) == identity(other))


HOSTILE = [
    *("..", ".", "../x", "a/../b", "/etc", "a\\b", "a\0b", "a b", "a\nb", "x" * 300, ""),
    *("аcme", "ａcme", "acme\u200b", "%2e%2e", "~", "'", "$(x)"),  # the first a is Cyrillic, the second full-width
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_parts_are_refused_with_what_is_allowed(text):
    """Paths, controls, look-alikes and monsters are refused in every part, in a short printable sentence."""
    for make in (
        lambda: TaskKey.github(text, "shop", issue=1),
        lambda: TaskKey.github("acme", text, issue=1),
        lambda: TaskKey.github("acme", "shop", issue=text),
        lambda: (
            TaskKey.gitlab(f"group/{text}", "shop", issue=1) if text != "a/../b" else TaskKey.gitlab(text, "s", issue=1)
        ),
        lambda: TaskKey.local(text),
        lambda: TaskKey.local("x", workspace=text or "/"),
        lambda: TaskKey.parse(f"github/{text}/shop/issue/1"),
    ):
        with pytest.raises(UsageError) as caught:
            make()
        assert "Allowed is" in caught.value.hint
        assert len(str(caught.value)) < 250
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("number", ["0", "-1", "007", "1.5", "1e3", "１２", "9" * 20])
def test_ids_of_forges_are_positive_numbers(number):
    """Signs, leading zeros and foreign digits are not numbers of an issue."""
    with pytest.raises(UsageError, match="task id"):
        TaskKey.github("acme", "shop", issue=number)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TaskKey.github("acme", "shop"),
        lambda: TaskKey.github("acme", "shop", issue=1, pull_request=2),
        lambda: TaskKey.gitlab("acme", "shop", project_id=4, issue=1),
        lambda: TaskKey.gitlab(project_id=-4, issue=1),
        lambda: TaskKey(task_source="github", project_id=4, task_type="issue", task_id="1"),
        lambda: TaskKey(task_source="svn", task_type="issue", task_id="1"),
        lambda: TaskKey(task_source="github", owner="a", repo="b", task_type="merge_request", task_id="1"),
        lambda: TaskKey.parse("github/acme"),
        lambda: TaskKey.parse("gitlab/abc/issue/1"),
        lambda: TaskKey.parse(""),
    ],
)
def test_incomplete_or_contradictory_keys_are_refused(make):
    """A key that does not name exactly one thing is a usage error."""
    with pytest.raises(UsageError):
        make()


def test_a_key_is_a_value():
    """Keys can be dictionary keys, cannot be changed, and are not equal to strings."""
    key = TaskKey.github("acme", "shop", issue=27)
    assert {key: 1}[TaskKey.github("ACME", "Shop", issue=27)] == 1
    assert key != "github/acme/shop/issue/27"
    with pytest.raises(AttributeError):
        key.owner = "bob"


def test_a_long_session_id_is_shortened_and_stays_unique():
    """A key fits into every index; two ids that differ only at their ends stay two keys."""
    one, other = TaskKey.session("あ" * 5000 + "a"), TaskKey.session("あ" * 5000 + "b")
    assert one != other
    assert str(one).startswith("session/" + "あ" * 300 + "~")
    assert len(str(one).encode()) < 2000


@pytest.mark.parametrize(
    "text", ["session/", "session/a\nb", "session/\x1b[31m", "session/ a", "session/" + "a" * 9000]
)
def test_a_session_key_from_outside_is_checked(text):
    """What no id is written as is refused."""
    with pytest.raises(UsageError, match="session"):
        TaskKey.parse(text)
