"""Stops a packing of documents whose ledger does not close, or closes over tokens that are not in the shards.

Everything is counted anew: rows by struct and tarfile, the tokens of each document by the tokenizers library.
"""

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from token_oracle import BOS, EOS, THINK, counts_of, documents_of, id_of, pack, parsed_ids, plain_ids, rows_of, small_tokenizer

from shardtools import partitions as partitions_module

SEQ_LEN = 23
"""Odd, and short enough for most documents to be cut."""
BLANK = (b"", b"  \t", b"\r")
BAD = {
    b'{"text": "cut': "invalid-json",
    b"[1]": "not-an-object",
    b'{"text": null}': "no-text",
    b'{"txt": "missing"}': "no-text",
    b'{"text": 7}': "not-text",
    b'{"text": ["a"]}': "not-text",
    b'{"text": "\\ud800 half"}': "lone-surrogate",
    b'{"text": "\xff"}': "invalid-utf8",
}
EMPTY = b'{"text": ""}'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4000)


def make_texts(count: int, seed: int = 1) -> list[str]:
    numbers = random.Random(seed)
    words = ["the", "cat", "Häuser", "画像", "x + 1", "\n\n", EOS, THINK, "\u2028", "e\u0301", "👩\u200d👧", "12345"]
    return [" ".join(numbers.choices(words, k=numbers.choice([1, 2, 3, 5, 8, 40]))) for _ in range(count)]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> tuple[Path, dict[str, str], Counter[str], int, int]:
    """Folder, texts by key, bad lines by reason, blank lines, empty documents."""
    numbers = random.Random(3)
    folder = tmp_path_factory.mktemp("source")
    texts, rejects, num_blank, num_empty = {}, Counter[str](), 0, 0
    for name in ("a", "b"):
        lines, at = [], 0
        for text in make_texts(250, len(name) + numbers.randrange(100)):
            odd = numbers.random()
            if odd < 0.04:
                line = numbers.choice(BLANK)
                num_blank += 1
            elif odd < 0.12:
                line = numbers.choice(list(BAD))
                rejects[BAD[line]] += 1
            elif odd < 0.15:
                line = EMPTY
                num_empty += 1
            else:
                line = json.dumps({"id": at, "text": text}, ensure_ascii=numbers.random() < 0.5).encode()
                texts[f"{name}/{at:012d}"] = text
            lines.append(line)
            at += len(line) + 1
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    return folder, texts, rejects, num_blank, num_empty


def test_the_reasons_are_told_apart(source):
    assert set(source[2]) == set(BAD.values())
    assert min(source[3], source[4]) > 3


PACKINGS = [
    {"packing": "none"},
    *({"packing": "none", "long_docs": rule, "seq_len": str(SEQ_LEN)} for rule in ("truncate", "drop")),
    *(
        {"packing": packing, "seq_len": str(SEQ_LEN), "long_docs": rule, "tail": tail}
        for packing, rule, tail in product(("concat", "bfd"), ("split", "truncate", "drop"), ("pad", "drop"))
    ),
]
ENDS = [{"eos": "none"}, {}, {"bos": BOS, "eos": EOS}]


SPECIALS = ["split", "parse"]
FAST = [(packing, ENDS[i % 3], SPECIALS[i // 3 % 2]) for i, packing in enumerate(PACKINGS)]
SLOW = [some for some in product(PACKINGS, ENDS, SPECIALS) if some not in FAST]


@pytest.mark.parametrize(("packing", "ends", "special"), [*FAST, *(pytest.param(*some, marks=pytest.mark.slow) for some in SLOW)])
def test_every_pair_of_options_closes(source, tokenizer, tmp_path, packing, ends, special):
    folder, texts, rejects, num_blank, num_empty = source
    words = {"tokenizer": tokenizer, "doc_ids": "", "special_in_text": special, **ends, **packing}
    format_ = "wds" if special == "parse" else "mds"
    result = pack(folder, tmp_path / "out", format_, max_bad="100%", **words)
    assert len(result.manifest.shards) >= 1
    encode = parsed_ids if special == "parse" else plain_ids
    expected = {key: with_ends(tokenizer, encode(tokenizer, text), ends) for key, text in texts.items()}
    rows = rows_of(tmp_path / "out")
    check_rows(rows, packing)
    check_documents(documents_of(rows), expected, packing)
    check_ledger(counts_of(tmp_path / "out"), rows, expected, packing)
    ledger = counts_of(tmp_path / "out")
    assert ledger["rejects"] == dict(sorted(rejects.items()))
    assert ledger["blank"] == num_blank
    tokenize = ledger["transforms"]["tokenize"]
    # An empty text has no tokens and so no ends either.
    assert tokenize["documents-empty"] == num_empty
    assert ledger["read"] == len(texts) + rejects.total() + num_empty
    assert ledger["read"] == ledger["written"] + ledger["rejected"] + ledger["filtered"]


def with_ends(tokenizer: Path, ids: list[int], ends: dict[str, str]) -> list[int]:
    """BOS and EOS as asked, not doubled where the text spells them already."""
    bos = id_of(tokenizer, BOS) if "bos" in ends else None
    eos = None if ends.get("eos") == "none" else id_of(tokenizer, EOS)
    begin = [] if bos is None or ids[0] == bos else [bos]
    end = [] if eos is None or ids[-1] == eos else [eos]
    return begin + ids + end


def check_rows(rows, packing):
    if packing["packing"] == "none":
        assert all(row.num_padding == 0 and len(row.seq_lens) == 1 for row in rows)
        return
    assert all(len(row.tokens) == SEQ_LEN for row in rows)
    keys = [row.key for row in rows]
    # {partition:06d}/{row:08d}: numbered without a hole in each partition, the partitions in order.
    numbered = Counter[str]()
    for key in keys:
        partition, _, number = key.partition("/")
        assert (len(partition), number) == (6, f"{numbered[partition]:08d}")
        numbered[partition] += 1
    assert keys == sorted(keys)
    assert len(numbered) > 5
    if packing["packing"] == "concat":
        assert sum(row.num_padding > 0 for row in rows) <= len(numbered)
    if packing["tail"] == "drop" and packing["packing"] == "concat":
        assert all(row.num_padding == 0 for row in rows)


def check_documents(stored, expected, packing):
    """What is stored of each document is what the policy leaves of it, in whatever rows."""
    rule = packing.get("long_docs", "split")
    dropped = 0
    for key, ids in expected.items():
        kept = ids
        if rule == "truncate":
            kept = ids[:SEQ_LEN]
        if rule == "drop" and len(ids) > SEQ_LEN:
            kept = []
        found, total = stored.pop(key, ([], len(ids)))
        assert total == len(ids)
        if packing.get("tail") == "drop":
            dropped += len(kept) - len(found)
            # The tail takes the end of a document, or in a row of several all of it; never its middle.
            assert kept[: len(found)] == found
        else:
            assert found == kept, key
    assert stored == {}


def check_ledger(ledger, rows, expected, packing):
    tokenize, packed = ledger["transforms"]["tokenize"], Counter(ledger["transforms"]["packing"])
    num_tokens = sum(map(len, expected.values()))
    stored = sum(sum(row.seq_lens) for row in rows)
    assert tokenize["tokens-in"] == packed["tokens-in"] == num_tokens
    assert tokenize["documents"] == packed["documents"] == len(expected)
    assert packed["tokens-stored"] == stored
    assert num_tokens == stored + packed["tokens-truncated"] + packed["tokens-dropped"]
    assert ledger["rows"] == packed["rows"] == len(rows)
    assert packed["padding"] == sum(row.num_padding for row in rows)
    assert packed["pieces"] == sum(len(row.seq_lens) for row in rows)
    long = [len(ids) for ids in expected.values() if len(ids) > SEQ_LEN]
    rule = packing.get("long_docs", "split")
    if rule == "truncate":
        assert (packed["documents-truncated"], packed["tokens-truncated"]) == (len(long), sum(long) - SEQ_LEN * len(long))
    if rule == "drop":
        assert packed["documents-dropped"] == len(long)
        assert ledger["filtered"] == len(long) + tokenize["documents-empty"]
    if packing.get("tail") != "drop" and rule != "drop":
        assert packed["tokens-dropped"] == 0
    if rule == "split" and packing.get("tail", "pad") == "pad":
        assert stored == num_tokens


def test_nothing_is_lost_by_default(source, tokenizer, tmp_path):
    folder, texts, *_ = source
    pack(folder, tmp_path / "out", max_bad="100%", tokenizer=tokenizer, seq_len="64")
    packed = counts_of(tmp_path / "out")["transforms"]["packing"]
    assert "tokens-truncated" not in packed or packed["tokens-truncated"] == 0
    assert "tokens-dropped" not in packed or packed["tokens-dropped"] == 0
    eos = id_of(tokenizer, EOS)
    stored = Counter(token for row in rows_of(tmp_path / "out") for piece in row.pieces() for token in piece)
    expected = Counter(token for text in texts.values() for token in [*plain_ids(tokenizer, text), eos])
    assert stored == expected


@pytest.mark.parametrize("bad", sorted(BAD), ids=lambda line: BAD[line])
def test_each_bad_line_is_set_aside_with_its_place(tokenizer, tmp_path, bad):
    lines = [b'{"text": "one"}', b"", bad, b'{"text": "two"}']
    (tmp_path / "docs.jsonl").write_bytes(b"\n".join(lines))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", max_bad="1", tokenizer=tokenizer, seq_len="8", doc_ids="")
    (reject,) = [json.loads(line) for line in (tmp_path / "out" / ".shardtools" / "rejects").read_bytes().splitlines()]
    assert reject["reason"] == BAD[bad]
    assert "docs.jsonl, line 3 (byte 17)" in reject["where"]
    assert len(documents_of(rows_of(tmp_path / "out"))) == 2
