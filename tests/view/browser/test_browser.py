"""Every page in a real browser: both themes, both widths, all keys, no request to another host, no error."""

import subprocess
import sys

import pytest
from axe_playwright_python.sync_playwright import Axe

import orihon
from orihon.planning.schema import Action, ActionPlan, Goal, Plan, make_entry
from orihon.settings.schema import Settings
from support.folded_task import UUID, play
from support.viewing import viewing

pytestmark = pytest.mark.slow

PAGES = {
    "tasks": "/",
    "conversation": f"/t/{UUID}",
    "window": f"/t/{UUID}/call/18",
    "difference": f"/t/{UUID}/diff/16/17",
    "timeline": f"/t/{UUID}/timeline",
    "tree": f"/t/{UUID}/tree",
    "plan": f"/t/{UUID}/plan",
    "task search": f"/t/{UUID}/search?q=value",
    "search": "/search?q=basket",
    "store": "/store",
    "message": f"/t/{UUID}/m/4",
}
THEMES, WIDTHS = ("light", "dark"), (360, 1440)
LIVE = """
import sys, orihon
from orihon.settings.schema import Settings
with orihon.open(sys.argv[1], settings=Settings()) as engine, engine.start("local/issue/live", uuid="live-1") as task:
    print(flush=True)
    for line in sys.stdin:
        window = task.window()
        task.add("user", line.strip())
        task.add_reply({"choices": [{"message": {"role": "assistant", "content": "heard " + line.strip()}}]})
        print(flush=True)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    url = str(tmp_path_factory.mktemp("store") / "contexts")
    with orihon.open(url, settings=Settings()) as engine:
        play(engine, user="alice")
        with engine.start("local/issue/plan", user="bob") as task:
            action = Action(task_id="1", tool="edit", purpose="Change the loop", status="completed")
            plan = Plan(goal_understanding=Goal(main_objective="Mend"), action_plan=ActionPlan(actions=(action,)))
            task.plan(make_entry(plan))
            task.fail("RuntimeError: the provider went away")
    return url


@pytest.fixture(scope="module")
def client(place):
    with viewing(place) as client:
        yield client


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_used_by_all(name, theme, width, client, visit):
    """Nothing is wider than the screen, and axe finds nothing: landmarks, labels, contrast, order."""
    page = visit(client, color_scheme=theme, viewport={"width": width, "height": 800}).open(PAGES[name])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    results = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert results.violations_count == 0, results.generate_report()


def test_the_keys(client, visit):
    """Each key of the help does what it says."""
    page = visit(client).open("/")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    assert focused == f"/t/{UUID}"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.getAttribute('href')") != focused
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.press("Escape")
    page.goto(page.url.rstrip("/") + PAGES["window"])
    for key, ending in (("]", "/call/19"), ("[", "/call/18")):
        page.keyboard.press(key)
        page.wait_for_url(f"**{ending}")
    for keys, ending in (("gl", "/timeline"), ("gw", "/call/27"), ("gc", f"/t/{UUID}"), ("/", "/search")):
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_url(f"**{ending}")
    for keys, ending in (("gs", "/store"), ("gt", "/")):
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_url(f"**{ending}")


def test_the_errors_can_be_reached(tmp_path, visit):
    """`e` goes to the next error and `E` back."""
    url = str(tmp_path / "contexts")
    with orihon.open(url, settings=Settings()) as engine, engine.start("local/issue/e", uuid="errors") as task:
        task.add("user", "Try.")
        for number in range(6):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            task.add_reply(
                {"choices": [{"message": {"role": "assistant", "content": "I try. " * 300, "tool_calls": [call]}}]}
            )
            with task.tool(task.pending_calls()[0]) as run:
                if number in {2, 4}:
                    raise ValueError("it broke")
                run.result = "fine"
    with viewing(url) as client:
        opened = visit(client)
        page = opened.open("/t/errors")
        seqs = client.get("/t/errors.json").json["errors"]
        assert len(seqs) == 2
        for key, seq in (("e", seqs[0]), ("e", seqs[1]), ("E", seqs[0])):
            page.keyboard.press(key)
            opened.wait(f"document.activeElement.id === 'm{seq}'")
            page.wait_for_timeout(900)  # it scrolls smoothly


def test_the_slider_shows_other_windows(client, visit):
    """Moving it shows the window of that call, without a new page."""
    page = visit(client).open(PAGES["window"])
    slider = page.locator(".slider input")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/call/17")
    assert "call 17" in page.locator("#report-title").inner_text()
    sent = client.get(f"/t/{UUID}/call/17.json").json["window"]["items"]
    assert page.locator("ol.window > li").count() == len(sent)


def test_a_mark_shows_what_it_hides(client, visit):
    """Opening what stands for messages shows them in full."""
    number, item = next(
        (number, item)
        for number in range(1, 28)
        for item in client.get(f"/t/{UUID}/call/{number}.json").json["window"]["items"]
        if item["state"] == "mark"
    )
    opened = visit(client)
    page = opened.open(f"/t/{UUID}/call/{number}")
    details = page.locator("li.item.mark details[data-load]").first
    details.locator("summary").first.click()
    opened.wait("document.querySelectorAll('li.item.mark details[open] article').length > 0")
    shown = page.locator("li.item.mark").first.locator("article .anchor").all_inner_texts()
    assert shown[0] == f"m{item['first']}"
    assert shown[-1] == f"m{item['last']}"


def test_the_filter_works_while_typing(client, visit):
    """The list is what was typed for, and its figures are there."""
    opened = visit(client)
    page = opened.open("/")
    page.locator("[data-search]").type("alice")
    opened.wait("document.querySelectorAll('tr[data-uuid]').length === 1")
    page.wait_for_selector("tr[data-uuid] svg.spark")
    assert page.url.endswith("q=alice&status=")


def test_a_link_to_a_message_finds_its_page(client, visit):
    """The fragment alone is enough."""
    page = visit(client).open(f"/t/{UUID}#m40")
    assert page.locator("#m40").count() == 1
    page.goto(page.url.split("#")[0] + "#m2")
    assert page.locator("#m2:target").count() == 1


def test_the_tail_is_live(place, client, visit):
    """What an agent in another process does appears; it stops when one scrolls up, and goes on at the end."""
    command = [sys.executable, "-c", LIVE, place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:

        def say(text):
            agent.stdin.write(f"{text}\n")
            agent.stdin.flush()
            agent.stdout.readline()

        agent.stdout.readline()
        opened = visit(client, viewport={"width": 900, "height": 600})
        page = opened.open("/t/live-1")
        for number in range(12):
            say(f"question {number}")
        page.wait_for_selector("#m24")
        opened.wait("innerHeight + scrollY > document.documentElement.scrollHeight - 200")
        page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
        opened.wait("scrollY < 50")
        say("while you read")
        page.wait_for_selector("[data-news]:not([hidden])")
        assert page.evaluate("scrollY") < 50
        page.locator("[data-news]").click()
        opened.wait("innerHeight + scrollY > document.documentElement.scrollHeight - 200")
        agent.stdin.close()
        page.wait_for_selector(".head .status.completed")


def test_the_tail_goes_on_after_a_break(place, client, visit):
    """A browser that was offline gets what it missed, once."""
    with orihon.open(place, settings=Settings()) as engine, engine.start("local/issue/off", uuid="off-1") as task:
        task.add("user", "before")
        opened = visit(client)
        page = opened.open("/t/off-1")
        task.add("user", "one")
        page.wait_for_selector("#m2")
        opened.context.set_offline(True)
        task.add("user", "two")
        task.add("user", "three")
        opened.context.set_offline(False)
        page.wait_for_selector("#m4")
        assert page.locator("article.message").count() == 4
        opened.problems.clear()  # the browser reports the break itself


def test_japanese(client, visit):
    """A Japanese browser gets Japanese pages."""
    page = visit(client, locale="ja-JP").open(PAGES["window"])
    assert "モデルが見たもの" in page.locator("#report-title").inner_text()
    assert page.locator("html").get_attribute("lang") == "ja"
