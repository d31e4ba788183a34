"""What is said while a bench runs; stops minutes without a word on how long it still takes, and rows of tokens told as samples."""

import re

import pytest
from attribution_model import STAGES, Model

from shardtools.bench.attribution import Context, attribute
from shardtools.bench.blocks import BlockPlan
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds
from shardtools.bench.self_test.run import _to_go
from shardtools.bench.spec import Layout, Workload


def test_attribution_counts_down() -> None:
    """Trials of 4 s each: a usual attribution takes 13 of them."""
    said: list[str] = []
    model = Model(dict.fromkeys(STAGES, 0.05) | {"decode": 0.5}, noise=0.001)
    attribute(model.spec(), model.run, Context(say=said.append), model.clock)
    left = [match[1] for line in said if (match := re.search(r"samples/s; about (\d+) s to go$", line))]
    assert left[:3] == ["48", "44", "40"]
    assert all(re.search(r"(about|at most) \d+ s to go$|nearly done$", line) for line in said), said


def test_beyond_what_is_usual_only_the_end_is_known() -> None:
    said: list[str] = []
    model = Model(dict.fromkeys(STAGES, 0.05) | {"decode": 0.3, "transform": 0.25}, noise=0.2, seed=1)
    attribute(model.spec(), model.run, Context(say=said.append, seconds=80.0), model.clock)
    assert len(said) > 13
    assert said[13].endswith("; at most 24 s to go")


@pytest.mark.parametrize(("tokens", "words"), [(None, "1,200 samples/s"), (512.0, "614,400 tokens/s, 1,200 rows/s")])
def test_rows_are_told_as_tokens(tokens: float | None, words: str) -> None:
    layout = Layout("tokens/", "mds", "streaming")
    rounds = Rounds(BenchRequest(("tokens/",), plan=BlockPlan.fixed(1, 0)), [layout], Workload(), print, [], [None], tokens_each=[tokens])
    assert rounds._rate(0, 1200.0) == words


def test_a_self_test_says_how_long_it_still_takes() -> None:
    assert _to_go(90.0, 2, 12) == "; about 8 min to go"
    assert _to_go(300.0, 11, 12) == "; about 27 s to go"
    assert _to_go(300.0, 12, 12) == ""
