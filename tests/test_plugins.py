"""Options of plug-ins: each takes its own words and no other's; stops an option that is silently ignored."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import shardtools
from shardtools import plugins
from shardtools.cli import pack
from shardtools.cli._help import GroupedOption
from shardtools.errors import UsageError

PACKAGES = {"source": "sources", "format": "formats", "engine": "engines"}


@pytest.mark.parametrize("package", ["sources", "formats", "engines", "storage"])
def test_names_are_those_of_the_files(package):
    folder = Path(shardtools.__file__).parent / package
    packages = [path.parent.name for path in folder.glob("[!_]*/__init__.py")]
    assert plugins.names(package) == sorted([*packages, *(path.stem for path in folder.glob("[!_]*.py"))])


def test_names_are_found_without_importing(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("shardtools.formats")]:
        monkeypatch.delitem(sys.modules, name)
    assert plugins.names("formats") == ["mds", "wds"]
    assert not any(name.startswith("shardtools.formats") for name in sys.modules)


def test_fields_take_words_by_their_types():
    mds = plugins.make("formats", "mds", {"compression": "zstd:3", "hashes": "xxh64,sha1", "key_column": "id"}, "--to")
    assert (mds.compression, mds.hashes, mds.key_column) == ("zstd:3", ("sha1", "xxh64"), "id")
    assert plugins.make("formats", "mds", {"key_column": "none"}, "--to").key_column is None
    assert plugins.make("formats", "mds", {}, "--to").key_column == "key"
    with pytest.raises(UsageError, match="--compression zstd"):
        plugins.make("formats", "mds", {"compression": "none"}, "--to")
    assert plugins.make("engines", "processes", {"workers": "3"}, "--engine").workers == 3


@pytest.mark.parametrize("engine", ["processes", "ray"])
@pytest.mark.parametrize("word", ["0", "-3", "x", "1.5", "²", ""])
def test_a_number_that_is_no_count_is_refused(engine, word):
    """With no workers, or fewer, nothing would be done at all."""
    with pytest.raises(UsageError, match=f"expected --workers of 1 or more, got '{re.escape(word)}'"):
        plugins.make("engines", engine, {"workers": word}, "--engine")


def test_sources_read_their_own_words():
    files = plugins.make("sources", "files", {"group": "file", "keep_path": "", "label_from": "dir"}, "--from")
    assert (files.group, files.keep_path, files.label_from_dir, files.fields) == ("file", True, True, None)
    jsonl = plugins.make("sources", "jsonl", {"key": "id", "max_line_bytes": "1KiB"}, "--from")
    assert (jsonl.key, jsonl.max_line_bytes, jsonl.keep_path, jsonl.map) == ("id", 1024, False, None)
    assert plugins.make("sources", "jsonl", {}, "--from").max_line_bytes == 512 << 20


@pytest.mark.parametrize(
    ("package", "name", "word", "flag", "says"),
    [
        (
            "engines",
            "serial",
            "workers",
            "--engine",
            "expected no --workers with --engine serial, got it; leave it out: it goes with --engine processes or ray",
        ),
        (
            "engines",
            "processes",
            "ray_address",
            "--engine",
            "expected no --ray-address with --engine processes, got it; leave it out: it goes with --engine ray",
        ),
        ("formats", "wds", "key_column", "--to", "expected no --key-column with --to wds, got it; leave it out: it goes with --to mds"),
        (
            "sources",
            "files",
            "map",
            "--from",
            "expected no --map with --from files, got it; leave it out: it goes with --from csv or jsonl or mds or parquet or wds",
        ),
        ("sources", "jsonl", "layout", "--from", "expected no --layout with --from jsonl, got it; leave it out"),
    ],
)
def test_a_word_of_another_plug_in_is_refused_by_name(package, name, word, flag, says):
    with pytest.raises(UsageError) as caught:
        plugins.make(package, name, {word: "1"}, flag)
    assert str(caught.value) == says


def test_every_option_of_a_plug_in_has_one_that_knows_it():
    """The command line offers exactly what the plug-ins know."""
    offered = {(option.of, option.name) for option in pack.command.params if isinstance(option, GroupedOption) and option.of in PACKAGES}
    known = set()
    for of, package in PACKAGES.items():
        for name in plugins.names(package):
            plugin = plugins.load(package, name)
            names = plugin.option_names if hasattr(plugin, "option_names") else [f.name for f in fields(plugin) if f.init]
            known |= {(of, option) for option in names}
    assert offered == known
