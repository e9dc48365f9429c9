"""Trees stay trees: always JSON, inside the limits of document 003, what can be pressed first."""

import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orihon
from orihon.context.tree import Limits, fit_tree, fold_tree, is_interactive, is_tree, limit_trees
from orihon.records import Message, Part
from orihon.task_key import TaskKey

KEY = TaskKey.local("t")
POLICIES = ("fold", "importance", "plain")
TOOLS = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]


def android(rows=150, *, clickable=7):
    """A screen as Android's tools dump it: a root, a list of rows, each with a label and perhaps a button."""
    views = []

    def add(parent, cls, **fields):
        flags = {"clickable": False, "checkable": False, "editable": False, "visible": True, "text": None}
        number = len(views)
        views.append({"class": cls, **flags, **fields, "children": [], "parent": parent, "temp_id": number})
        if parent >= 0:
            views[parent]["children"].append(number)
        return number

    root = add(-1, "android.widget.FrameLayout")
    column = add(root, "android.widget.LinearLayout")
    for number in range(rows):
        row = add(column, "android.widget.LinearLayout")
        add(row, "android.widget.TextView", text=f"row {number}")
        if number % clickable == 0:
            add(row, "android.widget.Button", text=f"open {number}", clickable=True)
    return {"foreground_activity": "shop/.Main", "views": views}


def chromium(paragraphs=150):
    """A page as Chromium's accessibility tree: links deep down, ignored nodes, and every text twice."""
    nodes = []

    def add(parent, role, name="", *, ignored=False, focusable=False):
        number = str(100 + len(nodes))
        value = {"type": "computedString", "value": name, "sources": [{"type": "attribute"}] * 3}
        properties = [{"name": "focusable", "value": {"type": "boolean", "value": True}}] if focusable else []
        node = {"nodeId": number, "ignored": ignored, "role": {"type": "role", "value": role}, "name": value}
        nodes.append({**node, "properties": properties, "childIds": []} | ({"parentId": parent} if parent else {}))
        if parent:
            next(node for node in nodes if node["nodeId"] == parent)["childIds"].append(number)
        return number

    root = add("", "RootWebArea", "Guide", focusable=True)
    main = add(add(root, "none", ignored=True), "main")
    for number in range(paragraphs):
        text = add(add(main, "paragraph"), "StaticText", f"text {number}")
        add(text, "InlineTextBox", f"text {number}")
        if number % 10 == 0:
            add(add(main, "generic"), "link", f"link {number}", focusable=True)
    return {"page": "guide", "nodes": nodes}


TREE = {
    "elements": [
        {
            "role": "AXButton",
            "title": "Submit",
            "description": "Click this button to submit the form",
            "help": "Press enter to activate",
            "position": {"x": 100, "y": 200},
            "children": [
                {"role": "AXStaticText", "value": f"part {n}", "children": [{"role": "AXImage"}]} for n in range(50)
            ],
        },
        *({"role": "AXCell", "title": f"cell {n}"} for n in range(300)),
    ]
}

FLAT = {"android": (android(), "views", "temp_id", "parent"), "chromium": (chromium(), "nodes", "nodeId", "parentId")}


def test_the_example_of_the_specification():
    """It comes out as printed; with a handle one more key says what was cut, and how to have it back."""
    children = [{"role": "AXStaticText", "value": f"part {number}"} for number in range(50)]
    position = {"x": 100, "y": 200}
    words = {"description": "Click this button to submit the form", "help": "Press enter to activate"}
    before = {"role": "AXButton", "title": "Submit", **words, "position": position, "children": children}
    printed = {"role": "AXButton", "title": "Submit", "position": position, "children": children[:20]}
    text = json.dumps({"elements": [before] * 301})
    assert json.loads(fold_tree(text)) == {"elements": [printed] * 200}
    shown = json.loads(fold_tree(text, handle="m7"))
    note = {"nodes": 101 * 51 + 200 * 30, "keys": 400, "unfold": "m7"}
    assert shown == {"elements": [printed] * 200, "[truncated]": note}


def test_an_accessibility_tree():
    """Twenty children, two hundred elements, no help texts; what is below becomes a mark, and all is counted."""
    shown = json.loads(fold_tree(json.dumps(TREE), handle="m7"))
    button = shown["elements"][0]
    assert button | {"children": []} == {
        "role": "AXButton",
        "title": "Submit",
        "position": {"x": 100, "y": 200},
        "children": [],
    }
    assert button["children"][0] == {"role": "AXStaticText", "value": "part 0", "children": "[truncated]"}
    assert len(button["children"]) == 20
    assert len(shown["elements"]) == 200
    cut = 101 + 2 * 30 + 20  # elements, children with what they hold, and what the kept children hold
    assert shown["[truncated]"] == {"nodes": cut, "keys": 2, "unfold": "m7"}


def test_objects_around_a_tree_are_no_levels():
    """The same tree inside a tool's answer, or sent as a string, is cut in the same way."""
    plain = json.loads(fold_tree(json.dumps(TREE)))["elements"]
    wrapped = json.loads(fold_tree(json.dumps({"ok": True, "result": {"page": TREE}})))
    assert wrapped["result"]["page"]["elements"] == plain
    string = json.loads(fold_tree(json.dumps({"elementsJson": json.dumps(TREE)})))
    assert json.loads(string["elementsJson"])["elements"] == plain


def test_long_strings():
    """Texts are cut at a thousand characters, data at two thousand."""
    shown = json.loads(fold_tree(json.dumps([{"title": "t" * 5000, "data": "d" * 5000}]), handle="m4"))
    assert shown[0] == {"title": "t" * 1000 + "...[truncated]", "data": "d" * 2000 + "...[truncated]"}
    assert shown[1] == {"[truncated]": {"characters": 7000, "unfold": "m4"}}


@pytest.mark.parametrize("form", FLAT)
def test_flat_trees_are_understood(form):
    """At most 200 nodes: the root, all that can be pressed, then the first 20 below each; still one tree."""
    tree, key, own, parent = FLAT[form]
    shown = json.loads(fold_tree(json.dumps(tree), handle="m5"))
    nodes = shown[key]
    assert len(nodes) <= 200 < len(tree[key])
    assert shown["[truncated]"]["nodes"] == len(tree[key]) - len(nodes)
    assert nodes[0][own] == tree[key][0][own]
    assert sum(map(is_interactive, nodes)) == sum(map(is_interactive, tree[key]))
    ids = [node[own] for node in nodes]
    assert ids == [node[own] for node in tree[key] if node[own] in ids]
    assert all(node[parent] in ids for node in nodes[1:])
    others = [node for node in tree[key] if node[own] in ids and not is_interactive(node)]
    assert max(Counter(node.get(parent) for node in others).values()) == 20
    below = "children" if form == "android" else "childIds"
    for node in nodes:
        kept = [other[own] for other in nodes if other.get(parent) == node[own]]
        assert node[below] == kept[:20]


@pytest.mark.parametrize("form", FLAT)
@pytest.mark.parametrize("max_chars", [20_000, 5_000, 2_000, 800, 100])
def test_the_budget_comes_second(form, max_chars):
    """In less room the tree is smaller, and what can be pressed is left out last; in none there is a mark."""
    tree, key, own, _ = FLAT[form]
    text = fold_tree(json.dumps(tree), handle="m5")
    shown = fit_tree(json.loads(text), text, max_chars=max_chars, handle="m5", limits=Limits())
    assert len(shown) <= max_chars
    value = json.loads(shown)
    assert value["[truncated]"]["unfold"] == "m5"
    nodes = value.get(key, [])
    assert value["[truncated]"]["nodes"] + len(nodes) == len(tree[key])
    if nodes:
        assert nodes[0][own] == tree[key][0][own]
        kept = {node[own] for node in nodes if is_interactive(node)}
        assert len(nodes) - 1 <= len(kept) or kept >= {n[own] for n in tree[key][1:] if is_interactive(n)}
        assert len(shown) > max_chars / 3


HOSTILE = {
    "a cycle": [{"temp_id": n, "parent": (n + 1) % 1000, "children": [n - 1]} for n in range(1000)],
    "its own parent": [{"temp_id": n, "parent": n, "children": [n]} for n in range(1000)],
    "one id for all": [{"temp_id": 1, "parent": 1, "children": [1]} for n in range(1000)],
    "a chain": [{"temp_id": n, "parent": n - 1, "children": [n + 1]} for n in range(1000)],
    "backwards": [{"temp_id": n, "parent": n + 1, "children": [n - 1]} for n in range(1000)],
    "no ids": [{"parent": n // 2 if n else -1, "children": []} for n in range(1000)],
    "odd ids": [{"temp_id": [n], "parent": n if n % 3 else {}, "children": "none"} for n in range(1000)],
    "only roots": [{"nodeId": str(n), "parentId": "gone", "childIds": []} for n in range(1000)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_odd_parents_do_no_harm(name):
    """Cycles, chains, ids that repeat or are none: a tree with the first node comes out, and cutting ends."""
    shown = fold_tree(json.dumps({"views": HOSTILE[name]}), handle="m5")
    nodes = json.loads(shown)["views"]
    assert 20 <= len(nodes) <= 200
    assert fold_tree(shown, handle="m5") == shown
    if name == "no ids":  # places are the names, and they changed
        assert all(-1 <= node["parent"] < number for number, node in enumerate(nodes))


def test_a_hundred_thousand_nodes():
    """They are cut like any others."""
    views = [{"temp_id": n, "parent": n // 3 - 1, "children": [], "class": "View"} for n in range(100_000)]
    views[99_999] |= {"clickable": True}
    nodes = json.loads(fold_tree(json.dumps({"views": views}), handle="m5"))["views"]
    assert (len(nodes), nodes[0]["temp_id"], nodes[-1]["temp_id"]) == (200, 0, 99_999)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"elements": [{"role": "AXButton"}]}, True),
        ({"result": [{"webElements": [{"tag": "a"}]}]}, True),
        ({"elementsJson": '[{"role": "AXButton"}]'}, True),
        ({"name": "src", "children": [{"name": "a.py"}]}, True),
        (android(3), True),
        (chromium(3), True),
        ([{"id": 1, "title": "an issue", "description": "long"}], False),
        ({"elements": ["Fe", "Cu"], "children": ["Anna", "Ben"]}, False),
        ([{"id": 1, "parent": None}, {"id": 2, "parent": 1}], False),
    ],
)
def test_what_is_a_tree(value, expected):
    """Nodes with children, flat lists of nodes, and elements of a UI; lists of records are none."""
    assert is_tree(value) == expected


def tool(content, name="look"):
    return Message(seq=4, role="tool", tool_name=name, content=content, timestamp="", tokens=9)


def test_only_results_of_tools_are_cut():
    """What the user or the model wrote stays, as do JSON that is no tree and a tree inside the limits."""
    large = json.dumps(android())
    limits = Limits()
    assert limit_trees(tool(large), limits).tokens == 0
    for message in (
        msgspec.structs.replace(tool(large), role="user"),
        msgspec.structs.replace(tool(large), role="assistant"),
        tool(json.dumps([{"id": n, "description": "x" * 2000} for n in range(400)])),
        tool(json.dumps(android(3))),
        tool(large[:-1]),
    ):
        assert limit_trees(message, limits) is message
    assert limit_trees(tool(json.dumps([{"id": n} for n in range(400)]), "elementsJson"), limits).tokens == 0


def test_trees_in_parts_are_cut():
    """Results in MCP's form hold the tree as the text of a part."""
    picture = Part(type="image", data="AAAA", media_type="image/png")
    parts = [Part(type="text", text=json.dumps(android())), picture]
    shown = limit_trees(tool(parts), Limits(), handle="m4").content
    assert len(json.loads(shown[0].text)["views"]) < 100
    assert shown[1] is picture


def screens(task, count):
    task.add("user", "Press the button in row 70.")
    for number in range(count):
        task.add("assistant", "", tool_calls=[{"id": f"c{number}", "name": "look", "arguments": "{}"}])
        tree, *_ = FLAT["android" if number % 2 else "chromium"]
        task.add("tool", json.dumps(tree), tool_call_id=f"c{number}", tool_name="look")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("context_length", [2_000, 16_000, 200_000])
def test_every_policy_shows_trees(policy, context_length):
    """In any window each result is JSON with at most 200 nodes, however often it is folded, and small ones stay."""
    with orihon.open("memory:") as engine:
        options = {"context_length": context_length, "window": policy, "tools": TOOLS, "inherit": False}
        with engine.start(KEY, **options) as task:
            screens(task, 1)
            first = [message for message in task.window().messages if message.role == "tool"]
            assert len(first) == 1
            screens(task, 7)
            shown = [message for message in task.window().messages if message.role == "tool"]
            assert shown
            for message in first + shown:
                value = json.loads(message.text)
                assert len(value.get("views") or value.get("nodes") or ()) <= 200
                assert value["[truncated]"]["unfold"].startswith("m")
            if policy == "fold" and context_length == 200_000:
                assert task.unfold("m3").endswith(json.dumps(FLAT["chromium"][0])[-300:])


NODES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("long " * 300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(
            st.sampled_from(["children", "role", "help", "data", "parent", "nodeId", "childIds", "elements", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=16,
)


@settings(max_examples=100, deadline=None)
@given(NODES, st.integers(1, 4), st.integers(1, 3000), st.booleans())
def test_any_tree(value, most, max_chars, is_ui):
    """Whatever the value: JSON comes out, no longer than it was; cutting again changes nothing."""
    text = json.dumps(value)
    limits = Limits(nodes=most, children=most, depth=1)
    shown = fold_tree(text, handle="m57", limits=limits)
    assert len(shown) <= len(text)
    json.loads(shown)
    assert fold_tree(shown, handle="m57", limits=limits) == shown
    assert shown == text or '"unfold":"m57"' in shown
    fitted = fit_tree(value, text, max_chars=max_chars, handle="m57", limits=limits if is_ui else None)
    json.loads(fitted)
    assert len(fitted) <= max(max_chars, 120) or fitted == text
    again = fit_tree(json.loads(fitted), fitted, max_chars=max_chars, handle="m57", limits=limits if is_ui else None)
    assert len(fitted) > max_chars or again == fitted
