"""Stops a plan that hides how often the input is gone through, and a summary that hides what was left out."""

import json

import pytest
from click.testing import CliRunner

from shardtools.cli.pack import command

CASES = {
    "": ["build"],
    "--shuffle --seed 1": ["scatter", "build"],
    "--split a=0.5,b=0.5": ["scatter", "build"],
    "--limit 5": ["select", "build"],
    "--dedup content --shuffle --seed 1": ["select", "scatter", "build"],
}


@pytest.fixture
def run(tmp_path):
    """The answer's lines to ``pack`` with some words behind source, destination and format."""
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"n": i % 7}) + "\n" for i in range(20)))

    def call(words: str) -> list[str]:
        arguments = [str(tmp_path / "docs.jsonl"), str(tmp_path / "out"), "--to", "mds", "--engine", "serial", *words.split()]
        result = CliRunner().invoke(command, arguments, standalone_mode=False)
        assert result.exception is None, result.exception
        return list(result.return_value.lines)

    return call


@pytest.mark.parametrize("words", CASES)
def test_a_dry_run_names_the_passes(run, words):
    plan = json.loads("\n".join(run(f"{words} --dry-run --json")))
    assert plan["passes"] == CASES[words]
    shown = [line for line in run(f"{words} --dry-run") if line.startswith("passes")]
    assert [line.split(maxsplit=1)[1] for line in shown] == ([", ".join(CASES[words])] if words else [])


def test_what_was_left_out_is_shown_by_option(run):
    lines = run("--dedup content --limit 5")
    assert [" ".join(line.split()) for line in lines if "left out" in line] == ["left out by --dedup 13", "left out by --limit 2"]


def test_an_option_that_left_out_nothing_says_so(run):
    lines = run("--dedup key --limit 50 --where n<50")
    assert [" ".join(line.split()) for line in lines if "left out" in line] == [
        "left out by --dedup 0",
        "left out by --limit 0",
        "left out by --where 0",
    ]
