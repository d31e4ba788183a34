"""Stops a recipe that means another thing than the options it names, is written other than it is read, or fails without its name."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from shardtools.cli import pack
from shardtools.cli._help import GroupedOption
from shardtools.cli.pack import command

NOT_IN_RECIPES = {"recipe", "write-recipe", "dry-run"}
NOT_WRITTEN = {"json", "overwrite", "part", "endpoint-url"}


def name_of(option: GroupedOption) -> str:
    (name,) = option.opts
    return name.removeprefix("--")


OPTIONS = {name_of(one): one for one in command.params if isinstance(one, GroupedOption) and name_of(one) not in NOT_IN_RECIPES}
REQUIRED = ["--to", "mds"]


def a_value(name: str) -> Any:
    """One that the option takes, other than its default."""
    kind = OPTIONS[name].type
    if OPTIONS[name].is_flag:
        return True
    if isinstance(kind, click.Choice):
        return next(choice for choice in kind.choices if choice not in (OPTIONS[name].default, "mds"))
    if isinstance(kind, click.types.IntParamType):
        return 7
    return "http://127.0.0.1:9" if OPTIONS[name].metavar == "URL" else 'a "b\\c" ü = ,'


def typed(name: str, value: Any) -> list[str]:
    return [f"--{name}"] if value is True else [f"--{name}", str(value)]


@pytest.fixture
def seen(monkeypatch) -> Callable[[list[str]], dict[str, Any]]:
    """What the command itself gets of a command line."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(command, "callback", lambda **given: given)

    def call(arguments: list[str]) -> dict[str, Any]:
        with command.make_context("shardtools pack", ["src", "dst", *arguments]) as context:
            found: dict[str, Any] = command.invoke(context)
            # Where the store is goes into the environment.
            return {**found, "endpoint": os.environ.pop("AWS_ENDPOINT_URL_S3", None)}

    return call


def written(tmp_path: Path, content: dict[str, Any], heading: str = "") -> list[str]:
    """Options that take a recipe of this content; literal strings, so that nothing is escaped."""
    lines = [f"{name} = " + (f"'{value}'" if isinstance(value, str) else json.dumps(value)) for name, value in content.items()]
    (tmp_path / "r.toml").write_text("\n".join([f"[{heading}]"] * bool(heading) + lines))
    return ["--recipe", str(tmp_path / "r.toml")]


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_means_in_a_recipe_what_it_means_when_typed(tmp_path, seen, name):
    value = a_value(name)
    others = [] if name == "to" else REQUIRED
    expected = seen([*others, *typed(name, value)])
    assert expected != seen(REQUIRED)
    assert seen([*others, *written(tmp_path, {name: value})]) == expected
    assert seen([*others, *written(tmp_path, {name: value}, OPTIONS[name].heading.lower())]) == expected


def test_a_required_option_may_stand_in_the_recipe_alone(tmp_path, seen):
    assert seen(written(tmp_path, {"to": "mds"})) == seen(REQUIRED)


def test_the_command_line_wins(tmp_path, seen):
    recipe = written(tmp_path, {"to": "wds", "seed": 1, "shuffle": True, "shard-size": "1MiB", "max-bad": 5, "workers": 3})
    expected = seen(["--to", "mds", "--seed", "2", "--shuffle", "--shard-size", "2MiB", "--max-bad", "0", "--workers", "1"])
    typed_too = ["--seed", "2", "--shard-size", "2MiB", "--max-bad", "0", "--workers", "1"]
    assert seen([*recipe, "--to", "mds", *typed_too]) == expected
    assert seen(["--to", "mds", *typed_too, *recipe]) == expected


@pytest.mark.parametrize(("kept", "typed_name"), [("shard-size", "shard-samples"), ("shard-samples", "shard-size")])
def test_a_typed_unit_of_shards_wins_over_the_other_unit_in_the_file(tmp_path, seen, monkeypatch, kept, typed_name):
    recipe = written(tmp_path, {"to": "mds", kept: 7})
    assert seen(recipe) == seen([*REQUIRED, f"--{kept}", "7"])
    assert seen([*recipe, f"--{typed_name}", "9"]) == seen([*REQUIRED, f"--{typed_name}", "9"])
    assert seen([f"--{typed_name}", "9", f"--{kept}", "8", *recipe]) == seen([*REQUIRED, f"--{typed_name}", "9", f"--{kept}", "8"])
    monkeypatch.setattr(command, "callback", click.pass_context(lambda context, **_: pack.write_recipe(str(tmp_path / "w.toml"), context)))
    with command.make_context("shardtools pack", ["src", "dst", *recipe, f"--{typed_name}", "9"]) as context:
        command.invoke(context)
    assert set(tomllib.loads((tmp_path / "w.toml").read_text())["output"]) == {"to", typed_name}


def test_a_number_is_taken_where_text_is_read_as_one(tmp_path, seen):
    assert seen([*REQUIRED, *written(tmp_path, {"seq-len": 2048})]) == seen([*REQUIRED, "--seq-len", "2048"])


NO_OPTION = "expected an option of shardtools pack, got another name"
NO_TOML = "expected r.toml to be TOML text, got an error in it"
FAULTS = {
    "shard_size = '1MB'": f"r.toml, line 1, 'shard_size': {NO_OPTION}; did you mean 'shard-size'?",
    "zzz = 1": f"r.toml, line 1, 'zzz': {NO_OPTION}; see shardtools pack --help",
    "recipe = 'other.toml'": f"r.toml, line 1, 'recipe': {NO_OPTION}; see shardtools pack --help",
    "to = 'zip'": "r.toml, line 1, 'to': expected a value that the option takes, got 'zip': 'zip' is not one of",
    "to = true": "r.toml, line 1, 'to': expected text, got True; correct it",
    "to = ['wds']": "r.toml, line 1, 'to': expected text, got ['wds']; correct it",
    "seed = -1": "r.toml, line 1, 'seed': expected a value that the option takes, got -1: ",
    "seed = '1'": "r.toml, line 1, 'seed': expected a whole number, got '1'; correct it",
    "seed = 1.5": "r.toml, line 1, 'seed': expected a whole number, got 1.5; correct it",
    "shuffle = 1": "r.toml, line 1, 'shuffle': expected true or false, got 1; correct it",
    "[tokens]\nseed = 1": "r.toml, line 2, 'seed': expected it under [selection] or above all headings, got it under [tokens]; move it",
    "seed = 1\n[selection]\nseed = 2": "r.toml, line 3, 'seed': expected it once, got it twice; remove one",
    "output = 1": f"r.toml, line 1, 'output': {NO_OPTION}",
    "to = 'wds'\n[zzz]\nseed = 1": f"r.toml, line 2, 'zzz': {NO_OPTION}",
    "# seed = 1\n\n'shuffle' = 1": "r.toml, line 3, 'shuffle': expected true or false, got 1; correct it",
    "[ selection ] # of samples\n  shuffle = 1": "r.toml, line 2, 'shuffle': expected true or false, got 1; correct it",
    "selection.shuffle = 1": "r.toml, 'shuffle': expected true or false, got 1; correct it",
    "to = 'wds'\nto = 'mds'\n": f"{NO_TOML}: Cannot overwrite a value (at line 2, column 11); correct it",
    "embed = [1]": "r.toml, line 1, 'embed': expected text, got [1]; correct it",
    "max-bad = 0.1": "r.toml, line 1, 'max-bad': expected text, got 0.1; correct it",
    "limit = 0": "r.toml, line 1, 'limit': expected a value that the option takes, got 0: 0 is not in the range x>=1; correct it",
    "seed = \n": f"{NO_TOML}: Invalid value (at line 1, column 8); correct it",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_is_one_sentence_with_the_file_and_the_key(tmp_path, pack_here, text):
    (tmp_path / "docs.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "r.toml").write_text(text)
    done = pack_here(tmp_path, "docs.jsonl", "out", "--to", "wds", "--recipe", "r.toml")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {FAULTS[text]}") and len(line) < 300
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "data"), [("nope.toml", None), ("bad.toml", b"to = '\xff'"), ("folder", None)])
def test_a_recipe_that_cannot_be_read_is_named(tmp_path, pack_here, name, data):
    (tmp_path / "folder").mkdir()
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = pack_here(tmp_path, "docs.jsonl", "out", "--to", "wds", "--recipe", name)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: expected ") and name in line


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_written_as_it_is_read(tmp_path, seen, monkeypatch, name):
    path = str(tmp_path / "w.toml")
    monkeypatch.setattr(command, "callback", click.pass_context(lambda context, **given: (pack.write_recipe(path, context), given)[1]))
    arguments = [*([] if name == "to" else REQUIRED), *typed(name, a_value(name))]
    expected = seen(arguments)
    content = tomllib.loads(Path(path).read_text("utf-8"))
    if name in NOT_WRITTEN:
        assert content == {"output": {"to": "mds"}}
        return
    assert content[OPTIONS[name].heading.lower()][name] == a_value(name)
    monkeypatch.setattr(command, "callback", lambda **given: given)
    assert seen(["--recipe", path]) == expected


RUNS = {
    "records": [
        "docs.jsonl",
        "--to",
        "mds",
        "--columns",
        "n=float64",
        "--key-column",
        "id",
        "--shard-size",
        "64KiB",
        "--compression",
        "zstd:3",
    ],
    "files": [
        "images",
        "--to",
        "wds",
        "--shuffle",
        "--seed",
        "5",
        "--shard-samples",
        "2",
        "--label-from",
        "dir",
        "--sidecars",
        "dali,wids",
    ],
    "members": ["docs.jsonl", "--to", "wds", "--map", "txt=text,cls=n", "--from", "jsonl", "--max-line-bytes", "1MiB"],
    "selection": [
        "docs.jsonl",
        "--to",
        "mds",
        "--where",
        'n >= 2 and text != "word 5"',
        "--dedup",
        "content",
        "--limit",
        "8",
        "--shuffle",
        "--seed",
        "1",
    ],
    "splits": ["docs.jsonl", "--to", "wds", "--split", "train=0.5,val=0.5", "--group-by", "n"],
    "media": ["captions.jsonl", "--to", "wds", "--embed", "image", "--media-root", "images"],
}


@pytest.mark.parametrize("case", RUNS)
def test_a_recipe_that_a_dry_run_wrote_gives_the_same_plan(tmp_path, pack_here, case):
    (tmp_path / "docs.jsonl").write_text("".join(f'{{"text": "word {i}", "n": {i}}}\n' for i in range(12)))
    for i in range(4):
        (tmp_path / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / "ab"[i % 2] / f"{i}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes([i]) * 100)
    (tmp_path / "captions.jsonl").write_text("".join(f'{{"image": "{"ab"[i % 2]}/{i}.jpg"}}\n' for i in range(4)))
    source, *options = RUNS[case]
    dry = pack_here(tmp_path, source, "out", *options, "--dry-run", "--json", "--write-recipe", "r.toml")
    assert dry.returncode == 0, dry.stderr
    plan = json.loads(dry.stdout)["plan"]
    again = pack_here(tmp_path, source, "out", "--recipe", "r.toml", "--dry-run", "--json", "--write-recipe", "again.toml")
    assert json.loads(again.stdout)["plan"] == plan
    assert (tmp_path / "again.toml").read_text() == (tmp_path / "r.toml").read_text()
    done = pack_here(tmp_path, source, "out", "--recipe", "r.toml", "--json", "--engine", "serial")
    assert json.loads(done.stdout)["plan"] == plan
    assert pack_here(tmp_path, source, "plain", *options, "--engine", "serial").returncode == 0
    assert (tmp_path / "out" / "shardtools.manifest").read_bytes() == (tmp_path / "plain" / "shardtools.manifest").read_bytes()


def test_no_file_is_replaced_and_none_is_written_without_a_dry_run(tmp_path, pack_here):
    (tmp_path / "docs.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "r.toml").write_text("mine")
    done = pack_here(tmp_path, "docs.jsonl", "out", "--to", "wds", "--dry-run", "--write-recipe", "r.toml")
    assert done.returncode == 2 and "got r.toml, which is there" in done.stderr and done.stdout == ""
    assert (tmp_path / "r.toml").read_text() == "mine"
    done = pack_here(tmp_path, "docs.jsonl", "out", "--to", "wds", "--write-recipe", "new.toml")
    assert done.returncode == 2 and "expected --dry-run with --write-recipe FILE" in done.stderr
    done = pack_here(tmp_path, "docs.jsonl", "out", "--to", "wds", "--dry-run", "--write-recipe", "no/r.toml")
    assert (
        done.returncode == 3
        and done.stderr == "error: could not write no/r.toml: No such file or directory; name another file with --write-recipe\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs.jsonl", "r.toml"]
