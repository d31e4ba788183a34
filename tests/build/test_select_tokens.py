"""``--where`` with ``--tokenizer``; stops a document that is left out from leaving a trace in the rows, and an open ledger."""

import json
from pathlib import Path
from typing import Any

import pytest
from step_orders import pack
from token_oracle import small_tokenizer

from shardtools.errors import UsageError
from shardtools.verify import verify
from shardtools.verify.options import VerifyOptions

RECORDS = [{"lang": ("en", "de", None)[i % 3], "text": f"text {i} " * (i % 7)} for i in range(400)]


def test_documents_are_chosen_before_they_become_tokens(tmp_path: Path) -> None:
    lines = tmp_path / "d.jsonl"
    lines.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in RECORDS))
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    words = {"token__tokenizer": tokenizer, "token__seq_len": 32}
    result = pack(lines, tmp_path / "out", "mds", where="lang = 'de' and text != ''", **words)
    kept = [one for one in RECORDS if one["lang"] == "de" and one["text"]]
    ledger = result.manifest.ledger
    assert (ledger.num_read, ledger.num_written, ledger.num_filtered) == (400, len(kept), 400 - len(kept))
    assert dict(ledger.filters) == {"where": 400 - len(kept)}
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in kept))
    only = pack(alone, tmp_path / "only", "mds", **words)
    shards = [[shard.sha256 for shard in one.manifest.shards] for one in (result, only)]
    assert shards[0] == shards[1]
    assert not verify(str(tmp_path / "out"), VerifyOptions(against=(str(lines),), tokenizer=str(tokenizer))).findings
    with pytest.raises(UsageError, match="expected no --embed with --tokenizer"):
        pack(lines, tmp_path / "media", "mds", embed="lang", **words)


def test_files_of_text_are_chosen_by_their_paths(tree: Any, tmp_path: Path) -> None:
    files = {f"{'ab'[i % 2]}/{i:02d}.txt": f"text {i} ".encode() * 5 for i in range(20)}
    source = tree(files)
    words = {"token__tokenizer": small_tokenizer(tmp_path / "tokenizer"), "token__seq_len": 32}
    result = pack(source, tmp_path / "out", "mds", where="path startswith 'b/' and txt contains 'text 1'", **words)
    only = pack(
        tree({name: data for name, data in files.items() if name[0] == "b" and b"text 1" in data}, "only"),
        tmp_path / "alone",
        "mds",
        **words,
    )
    assert result.manifest.ledger.num_filtered == 20 - only.manifest.ledger.num_written
    assert only.manifest.ledger.num_written == 6
    assert [shard.sha256 for shard in result.manifest.shards] == [shard.sha256 for shard in only.manifest.shards]
