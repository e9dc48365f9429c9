"""`orihon similar`: tasks with the same rare words come first."""

import json

import pytest

from orihon.stores import open_store
from support.cli_store import KINDS, said
from support.past_runs import a_run


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path):
    return url_at(request.param, tmp_path)


def test_the_most_alike_come_first(url):
    """By rare words in English and Japanese, and by the thing that they worked on."""
    with open_store(url) as store:
        one = a_run(store, summary="Fixed the rounding of totals in basket.py; 認証処理を修正。", key="local/issue/a")
        near = a_run(store, summary="The rounding of totals was wrong in basket.py.", key="local/issue/b")
        japanese = a_run(store, summary="認証処理の不具合。", key="local/issue/c")
        same = a_run(store, summary="Nothing in common.", key="local/issue/a")
        for number in range(20):
            a_run(
                store, summary=f"The report number {number} was written in the evening.", key=f"local/issue/d{number}"
            )
        bobs = a_run(store, summary="The rounding of totals in basket.py.", user="bob", key="local/issue/e")
    found = json.loads(said("similar", one, "--json", url=url, user="alice"))
    order = [other["task"]["uuid"] for other in found]
    assert order[0] == same
    assert {near, japanese} <= set(order[1:4])
    assert order.index(near) < order.index(japanese)
    assert bobs not in order
    assert {"rounding", "totals", "basket"} <= set(next(o for o in found if o["task"]["uuid"] == near)["shared"])
    assert said("similar", one[:13], "--limit", "2", url=url).count("\n") == 3  # with the heading
