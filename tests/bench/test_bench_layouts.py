"""What a user names is read as what it is, by a reader that reads it, with one workload on all sides; stops a benchmark of the
wrong thing.
"""

import json

import pytest
from bench_sides import as_files, as_lines, as_tars, pack_tokens, pictures, small_tokenizer

from shardtools.bench.readers import layouts_of, settle_workload
from shardtools.bench.spec import Layout, Workload
from shardtools.build import run
from shardtools.build.order import OrderWords, order_of
from shardtools.errors import UsageError
from shardtools.sources import resolve_inputs

pytestmark = pytest.mark.train

DOCS = [{"text": f"the cat sat {i}", "id": str(i)} for i in range(12)]


@pytest.fixture
def sides(tmp_path):
    """The URI of each kind by its name."""
    files = as_files(tmp_path / "files", pictures(8))
    run.build([files], str(tmp_path / "mds"), order_of(resolve_inputs([files]), OrderWords("mds")))
    return {
        "files": files,
        "wds": as_tars(tmp_path / "wds", pictures(8)),
        "mds": str(tmp_path / "mds"),
        "jsonl": as_lines(tmp_path / "docs.jsonl", DOCS),
    }


def test_each_kind_has_the_reader_of_its_users(sides):
    layouts = layouts_of([sides[kind] for kind in ("files", "jsonl", "wds", "mds")])
    assert [(layout.kind, layout.reader) for layout in layouts] == [
        ("files", "torch"),
        ("jsonl", "torch"),
        ("wds", "webdataset"),
        ("mds", "streaming"),
    ]


def test_a_folder_of_lines_and_one_shard_are_known(sides, tmp_path):
    (tmp_path / "lines").mkdir()
    as_lines(tmp_path / "lines" / "a.jsonl", DOCS)
    uris = [str(tmp_path / "lines"), f"{sides['wds']}/train-000000.tar", f"{sides['wds']}/train-{{000000..000001}}.tar"]
    assert [layout.kind for layout in layouts_of(uris)] == ["jsonl", "wds", "wds"]


def test_asked_readers_read_what_they_can(sides):
    uris = [sides["files"], sides["wds"], sides["mds"]]
    assert [layout.name for layout in layouts_of(uris, ("webdataset", "shardtools"))] == [
        "files by torch",
        "wds by webdataset",
        "wds by shardtools",
        "mds by shardtools",
    ]
    assert [layout.name for layout in layouts_of([sides["jsonl"], sides["mds"]], ("shardtools",), tokenizes=True)] == [
        "jsonl by torch",
        "mds by shardtools",
    ]


@pytest.mark.parametrize(
    ("reader", "message"), [("streaming", "expected a reader of files, got streaming"), ("dali", "expected a reader as one of")]
)
def test_a_reader_of_nothing_is_refused(sides, reader, message):
    with pytest.raises(UsageError, match=message):
        layouts_of([sides["files"]], (reader,))


def test_what_is_not_there_or_broken_is_no_folder_of_files(sides, tmp_path):
    with pytest.raises(UsageError, match="got nothing of that name"):
        layouts_of([str(tmp_path / "absent")])
    (tmp_path / "mds" / "shardtools.manifest").unlink()
    (tmp_path / "mds" / "index.json").unlink()
    with pytest.raises(UsageError, match="shardtools index"):
        layouts_of([sides["mds"]])


def settled(uris, **workload):
    layouts = layouts_of(uris, tokenizes="tokenizer" in workload)
    return settle_workload(layouts, Workload(**workload))


def test_decode_is_what_all_sides_hold(sides, tmp_path):
    assert settled([sides["files"], sides["wds"], sides["mds"]]).decode == "rgb"
    assert settled([sides["files"], sides["wds"]], decode="none").decode == "none"
    assert settled([sides["jsonl"], sides["files"]]).decode == "none"
    run.build([sides["jsonl"]], str(tmp_path / "docs-mds"), order_of(resolve_inputs([sides["jsonl"]]), OrderWords("mds")))
    run.build([sides["jsonl"]], str(tmp_path / "docs-wds"), order_of(resolve_inputs([sides["jsonl"]]), OrderWords("wds")))
    assert settled([sides["jsonl"], str(tmp_path / "docs-mds")]).decode == "text"
    assert settled([sides["jsonl"], str(tmp_path / "docs-wds")]).decode == "none"
    assert settled([sides["jsonl"], str(tmp_path / "docs-mds")], text_key="absent").decode == "none"


def test_settling_again_changes_nothing(sides):
    layouts = layouts_of([sides["files"], sides["mds"]])
    once = settle_workload(layouts, Workload())
    assert once.like == sides["mds"]
    assert settle_workload(layouts[:1], once) == once


def test_rows_of_tokens_say_how_text_is_tokenized(sides, tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    records = as_lines(tmp_path / "nested.jsonl", [{"meta": {"body": f"the dog {i}"}} for i in range(9)])
    packed = pack_tokens(records, tmp_path / "rows", tokenizer, "wds", {"seq_len": "16", "text_key": "meta.body"})
    workload = settled([records, packed], tokenizer=tokenizer)
    assert (workload.decode, workload.seq_len, workload.text_key, workload.like) == ("tokens", 16, "meta.body", packed)
    with pytest.raises(UsageError, match="give --tokenizer"):
        settled([records, packed])
    with pytest.raises(UsageError, match="expected --tokenizer FILE"):
        settled([records, packed], decode="tokens")
    with pytest.raises(UsageError, match="expected --seq-len 16"):
        settled([records, packed], tokenizer=tokenizer, seq_len=32)
    with pytest.raises(UsageError, match="expected tokens on all sides"):
        settled([packed, sides["wds"]])


def test_layouts_are_plain_data(sides):
    layouts = layouts_of(list(sides.values()))
    assert [Layout(**json.loads(json.dumps(vars(layout)))) for layout in layouts] == layouts
