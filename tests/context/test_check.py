"""What a summary of a model may not be: too short, a refusal, a question, in another language, about something else."""

import pytest

from orihon.context.check import Covered, find_objection, is_in_language, is_refusal
from orihon.context.summary import Limits, summarise
from orihon.records import Message
from orihon.tokens import counter

COUNT = counter("estimate")
REFUSALS = [
    "I'm sorry, I cannot help with that.",
    "I\u2019m sorry, but I can\u2019t assist with this request.",
    "I cannot summarise this conversation.",
    "As an AI language model I do not have access to the messages.",
    "Unfortunately, I am unable to do so.",
    "申し訳ありませんが、そのご依頼にはお応えできません。",
    "この会話を要約することはできません。",
]
QUESTIONS = [
    "What would you like me to summarise?",
    "Sure! Please provide the messages.",
    "Could you please share the conversation with me?",
    "要約する内容を提供してください。",
    "どの部分を要約すればよいでしょうか？",
]
SUMMARIES = [
    "The user asked why the login is blank. The lookup in auth/session.py returned None; it now returns False.",
    "Sorting was wrong in src/sort.py; the comparison is fixed. I can not reproduce the second report.",
    "auth/session.py の None を False に直した。テストは未実行。",
    "Asked the user: which database should we use? The answer was PostgreSQL, so migrations/002.sql was written. " * 3,
]


def covered(**changes):
    fields = {"seqs": frozenset(range(1, 90)), "tokens": 2000, "names": (), "language": "en", "max_tokens": 800}
    return Covered(**fields | changes)


@pytest.mark.parametrize("text", [*REFUSALS, *QUESTIONS])
def test_refusals_and_questions_are_no_summaries(text):
    """In English and in Japanese, also when they are longer than a few words."""
    assert is_refusal(text)


@pytest.mark.parametrize("text", SUMMARIES)
def test_a_summary_may_tell_of_questions_and_of_what_could_not_be_done(text):
    """Only the opening of a text refuses, and only a short text asks back."""
    assert not is_refusal(text)


def test_paths_and_symbols_do_not_decide_the_language():
    """A Japanese summary full of names is Japanese; an English one may quote a Japanese title."""
    names = "src/auth/session.py tests/test_session.py AuthError compute_total " * 20
    assert is_in_language(f"{names} を直した。", "ja")
    assert not is_in_language(f"{names} was fixed.", "ja")
    assert is_in_language("The page 「ログイン」 was blank, because the template was missing.", "en")
    assert not is_in_language("ログイン画面の白い表示を直した。", "en")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the summary is empty"),
        ("OK", "too few for the 2,000 that it covers"),
        ("word " * 900, "it may have 800"),
        ("In m91 the bug in the parser was found, and then it was repaired.", "names m91"),
        (REFUSALS[0], "a refusal or a question"),
        ("ログイン画面の白い表示を直した。テストはまだ実行していない。", "not in English"),
    ],
)
def test_an_objection_is_a_sentence(text, problem):
    """It says what is wrong, so that the model can do better."""
    assert problem in find_objection(text, covered(), COUNT)


def test_a_text_about_something_else_is_refused():
    """One in eight of the names that the covered part kept using is the least; the others are appended."""
    names = ("src/a_one.py", "src/b_two.py", "src/c_three.py", "src/d_four.py")
    about = covered(names=names)
    vague = "The user and the assistant discussed a few things and made good progress on all of them."
    assert "src/a_one.py, src/b_two.py" in find_objection(vague, about, COUNT)
    assert find_objection(f"{vague} It was src/c_three.py.", about, COUNT) == ""


def test_much_needs_more_than_a_sentence():
    """The least length grows with what is covered, to a hundred tokens."""
    assert covered(tokens=25_015, max_tokens=4096).min_tokens == 75
    assert covered(tokens=250_000, max_tokens=4096).min_tokens == 100
    assert covered(tokens=20, max_tokens=8).min_tokens == 4


def test_a_refused_summary_is_asked_for_again_with_what_was_wrong():
    """The next request says it, in the language of the summary."""
    messages = [
        Message(seq=seq, role="user", content="ログイン画面が白いので直してください。" * 9, timestamp="", tokens=90)
        for seq in range(1, 9)
    ]
    refusal, good = REFUSALS[-2], "ログイン画面が白い問題を直すよう依頼された。原因は未調査である。"
    asked, said = [], iter(["OK", refusal, good])

    def model(prompt):
        asked.append(prompt)
        return next(said)

    made = summarise(messages, counter=COUNT, limits=Limits(context_length=32_000), summariser=model)
    assert made.by_model
    assert len(made.problems) == 2
    assert "受け付けられませんでした" not in asked[0]
    assert asked[1].endswith("書き直してください。")
    assert "too few" in asked[1]
    assert "a refusal" in asked[2]
