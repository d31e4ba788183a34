"""Stops spills that are read as if they were parted otherwise, where media that records point at grew between two runs of one build."""

import json

from shardtools import partitions as partitions_module
from shardtools.build.order import OrderWords, order_of
from shardtools.build.planning import plan_build
from shardtools.build.run import PartDone, Result, RunOptions, build_part
from shardtools.build.stages.advance import Share
from shardtools.build.stages.layout import ScatterLayout
from shardtools.sources import resolve_inputs

COUNT = 100


def test_what_was_scattered_in_another_layout_is_scattered_again(tmp_path, monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 40_000)
    (tmp_path / "src").mkdir()
    records = [json.dumps({"image": f"{i}.bin", "pad": "x" * 300}) + "\n" for i in range(COUNT)]
    (tmp_path / "src" / "r.jsonl").write_text("".join(records))
    inputs, out = resolve_inputs([str(tmp_path / "src" / "r.jsonl")]), str(tmp_path / "out")
    words = OrderWords("wds", "jsonl", embed_options={"embed": "image"}, shuffle=True, seed=1, shard_size="64KiB")
    planned, done = [], []
    for i, num_bytes in enumerate([1560, 1620]):
        for k in range(COUNT):
            (tmp_path / "src" / f"{k}.bin").write_bytes(bytes([k]) * num_bytes)
        planned.append(plan_build(inputs, order_of(inputs, words)))
        done.append(build_part(inputs, out, order_of(inputs, words), RunOptions(part=Share(i, 2))))
    assert planned[0].plan.digest == planned[1].plan.digest
    assert ScatterLayout.of(planned[0]) != ScatterLayout.of(planned[1])
    # Partitions of the first run are missing again, which are that part's own.
    assert isinstance(done[1], PartDone)
    last = build_part(inputs, out, order_of(inputs, words), RunOptions(part=Share(0, 2)))
    assert isinstance(last, Result)
    assert last.manifest.ledger.num_written == COUNT
