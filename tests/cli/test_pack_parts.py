"""``pack --part``: exit code 0 and what is left, for people and programs; stops a scheduler that cannot tell a part from the whole."""

import json

import pytest


@pytest.fixture
def pack_part(tree, tmp_path, pack_here, monkeypatch):
    """Packs one sample in each of three partitions."""
    from shardtools import partitions

    monkeypatch.setattr(partitions, "MIN_PARTITION_BYTES", 1000)
    tree({f"{i}.bin": b"x" * 1500 for i in range(3)})
    return lambda *words: pack_here(tmp_path, "src", "out", "--to", "wds", "--engine", "serial", *words)


def test_a_part_says_what_is_left_and_the_last_what_one_run_says(pack_part):
    first = pack_part("--part", "1/2", "--json")
    assert first.returncode == 0
    said = json.loads(first.stdout)
    assert said.pop("seconds") >= 0
    assert said == {"part": "1/2", "published": False, "partitions": 3, "left": 1}
    again = pack_part("--part", "1/2")
    assert again.returncode == 0
    assert again.stdout.splitlines()[:2] == ["part     1/2 done", "left     1 of 3 partitions, for other parts; the last to end publishes"]
    last = pack_part("--part", "2/2", "--json")
    said = json.loads(last.stdout)
    assert last.returncode == 0 and said["samples"] == 3
    assert (said["part"], said["published"], said["left"]) == ("2/2", True, 0)
    late = pack_part("--part", "1/2")
    assert late.returncode == 0 and "already complete" in late.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--part", "3/2"], "error: expected --part as I/N, from 1/N to N/N, got '3/2'\n"),
        (["--part", "1/2", "--overwrite"], "error: expected no --overwrite with --part, which would discard what other parts built; "),
    ],
)
def test_what_no_part_can_do_is_refused(pack_part, tmp_path, words, says):
    done = pack_part(*words)
    assert done.returncode == 2 and says in done.stderr and done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_how_many_parts_there_is_work_for(pack_part):
    dry = pack_part("--dry-run")
    assert dry.returncode == 0
    assert [line.split() for line in dry.stdout.splitlines() if line.startswith("partitions")] == [["partitions", "3"]]
