"""What of a log is matter: prompts, structured answers, inherited blocks and wrappers are not."""

from orihon.context.matter import matter_of
from orihon.records import Issue, Message


def said(seq, role, text, **more):
    return Message(seq=seq, role=role, content=text, timestamp="", tokens=9, **more)


def texts(*messages):
    return [message.text for message in matter_of(messages)]


def test_what_the_planner_asks_and_what_it_is_answered_is_no_matter():
    """The report of a step is matter, without the JSON at its end."""
    assert texts(
        said(1, "user", "Plan the task. Answer in JSON.", key="orihon:planning:1"),
        said(2, "assistant", '{"goal_understanding": {}}', key="orihon:planning:1:2"),
        said(3, "user", "Action 1 of 2", key="orihon:planning:2"),
        said(4, "assistant", 'I guarded the division.\n\n```json\n{"reflection": {"status": "success"}}\n```'),
    ) == ["I guarded the division."]


def test_the_json_of_other_answers_stays():
    """Outside of a plan, an object at the end of a reply is what the user asked for."""
    text = 'The settings are {"port": 80}'
    assert texts(said(1, "user", "Which settings?"), said(2, "assistant", text)) == ["Which settings?", text]
    reply = "In the plan: {not json}"
    assert texts(said(1, "user", "Action", key="orihon:planning:2"), said(2, "assistant", reply)) == [reply]


def test_inherited_blocks_and_our_own_requests_are_no_matter():
    """They are in the log and in the window, and nowhere else."""
    assert texts(
        said(2, "assistant", "Summary of the previous run", key="orihon:handoff"),
        said(3, "user", "Mend it."),
        said(4, "user", "Your last reply was cut.", key="orihon:notice:3"),
    ) == ["Mend it."]


def test_an_issue_is_read_from_its_fields():
    """The headings, the key and the author of the rendered message are left behind."""
    issue = Issue(title="Login is blank", body="Since Monday.", latest="Do it today.", author="alice", labels=["bug"])
    rendered = said(1, "user", "TASK: x\nAUTHOR: alice\n# TITLE\n> Login is blank", issue=issue)
    assert texts(rendered) == ["Login is blank\n\nSince Monday.\n\nDo it today."]
