"""Sides that deliver the same are proved to, by real reading, and others are refused with what differs; stops a comparison of
different work.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import pytest
from bench_sides import QUIET, as_files, as_lines, as_mds, as_tars, ids_of, pack_tokens, pictures, small_tokenizer
from torch.utils.data import IterableDataset
from watching import processes_with, wait_until

from shardtools.bench.equality import Proof, child, prove, refusal, refuse_unequal
from shardtools.bench.equality._witness import Witness, canonical_key, digest_of, key_hash
from shardtools.bench.equality.child import judge, prove_here
from shardtools.bench.readers import Side, layouts_of, settle_workload
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.errors import ShardtoolsError, UsageError

pytestmark = [
    *QUIET,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]

SAMPLES = pictures(45)
ENCODINGS = {"json": "bytes", "png": "png"}
TEXTS = [f"{i} {'the cat sat on the log ' * (i % 9)}Häuser" for i in range(90)]


@pytest.fixture(scope="module", autouse=True)
def quiet_libraries(streaming, webdataset):
    """Imported once, with their own warnings."""


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path_factory):
    """The folder of all temporary files of the test; short: see ``private_folder``."""
    tmp_path_factory.getbasetemp()  # made before, else it would go with the first test's
    with tempfile.TemporaryDirectory(prefix="proof-test-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


def proofs_of(uris, readers=(), **workload):
    layouts = layouts_of(uris, readers, tokenizes="tokenizer" in workload)
    settled = settle_workload(layouts, Workload(**{"batch_size": 4, "image_side": 8, **workload}))
    return [prove_here(layout, settled, Settings(2)) for layout in layouts]


# Samples with keys.


def test_all_layouts_of_the_same_samples_are_the_same(tmp_path):
    uris = [as_files(tmp_path / "files", SAMPLES), as_tars(tmp_path / "wds", SAMPLES), as_mds(tmp_path / "mds", SAMPLES, ENCODINGS)]
    proofs = proofs_of(uris, ("webdataset", "streaming", "shardtools"))
    assert refuse_unequal(proofs) == [
        f"files by torch and {other}: the same 45 samples, each delivered once; every field of 45 samples is the same (json, png); "
        "the 45 with the smallest hashes decode to the same"
        for other in ("wds by webdataset", "wds by shardtools", "mds by streaming", "mds by shardtools")
    ]
    hashes = [key_hash(key) for key in SAMPLES]
    xor = 0
    for value in hashes:
        xor ^= value
    payload = sum(len(value) for fields in SAMPLES.values() for value in fields.values())
    for proof in proofs:
        assert (proof.count, proof.num_delivered, proof.num_repeated, proof.payload_bytes, proof.whole) == (45, 45, 0, payload, True)
        assert proof.id_hash == f"{sum(hashes) % 2**64:016x}:{xor:016x}"
    assert len({proof.decode_digest for proof in proofs}) == 1


def test_the_samples_with_the_smallest_hashes_are_decoded(tmp_path):
    """The same ones on all sides, whichever worker reads which."""
    samples = {f"{i:04d}": {"txt": b"%d" % i} for i in range(300)}
    uris = [as_files(tmp_path / "files", samples), as_tars(tmp_path / "wds", samples, per_shard=11)]
    chosen = sorted(samples, key=key_hash)[:64]
    proofs = proofs_of(uris, decode="none")
    for proof in proofs:
        assert sorted(proof.decoded) == sorted(chosen)
    assert "the 64 with the smallest hashes" in refuse_unequal(proofs)[0]


def test_without_keys_samples_are_named_by_their_place(tmp_path):
    """By both readers; and they are not those of files, whatever they hold."""
    mds = as_mds(tmp_path / "mds", SAMPLES, ENCODINGS, keyed=False)
    proofs = proofs_of([mds], ("streaming", "shardtools"))
    refuse_unequal(proofs)
    assert proofs[0].keys[0] == "00000/00000000" and len(set(proofs[0].keys)) == 45
    with pytest.raises(UsageError, match=r"45 only in .*files"):
        refuse_unequal([*proofs_of([as_files(tmp_path / "files", SAMPLES)]), *proofs])


def changed(key, **fields):
    return {**SAMPLES, key: {**SAMPLES[key], **fields}}


OTHER_PNG = SAMPLES["00/0000"]["png"]
REFUSED = {
    "a picture is another": (changed("01/0003", png=OTHER_PNG), {}, "decode to the same.*got 1 of 45 others, such as 01/0003"),
    "a byte of another field": (changed("01/0003", json=b'{"n": 4}'), {"decode": "none"}, "got 1 of 45 others, such as 01/0003"),
    "a sample is missing": (
        {key: fields for key, fields in SAMPLES.items() if key != "00/0010"},
        {},
        r"got 45 in .* and 44 in .*: 1 only in .*files \(00/0010\)",
    ),
    "a sample more": ({**SAMPLES, "00/9999": SAMPLES["00/0000"]}, {}, r"1 only in .*wds \(00/9999\)"),
    "a key is another": (
        {("x/renamed" if key == "00/0002" else key): fields for key, fields in SAMPLES.items()},
        {},
        r"1 only in .*files \(00/0002\), 1 only in .*wds \(x/renamed\)",
    ),
    "a field is missing": (
        {key: {"png": fields["png"]} for key, fields in SAMPLES.items()},
        {},
        "one holds fields that the other lacks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("reader", ["webdataset", pytest.param("shardtools", marks=pytest.mark.slow)])
def test_sides_that_differ_are_refused(tmp_path, case, reader, one_sentence):
    samples, workload, message = REFUSED[case]
    proofs = proofs_of([as_files(tmp_path / "files", SAMPLES), as_tars(tmp_path / "wds", samples)], (reader,), **workload)
    with pytest.raises(UsageError, match=message) as caught:
        refuse_unequal(proofs)
    one_sentence(caught.value)


@pytest.mark.parametrize("reader", ["webdataset", "shardtools"])
def test_a_sample_that_is_stored_twice_is_a_repeat(tmp_path, reader):
    wds = as_tars(tmp_path / "wds", SAMPLES)
    (tmp_path / "wds" / "train-000007.tar").write_bytes((tmp_path / "wds" / "train-000000.tar").read_bytes())
    proofs = proofs_of([wds], (reader,))
    assert proofs[0].num_repeated == 7
    with pytest.raises(UsageError, match=r"expected every sample once an epoch from wds by .*, got 7 repeats, 0"):
        refuse_unequal(proofs)


class IgnoresWorkers(IterableDataset):
    """Each worker reads all of it."""

    def __init__(self, finish):
        self._finish = finish

    def __iter__(self):
        return iter([self._finish({"__key__": key, **fields}) for key, fields in SAMPLES.items()])


def test_a_dataset_that_takes_no_note_of_its_worker_is_refused(tmp_path):
    """Even where the benchmark itself would have no workers."""
    layout, workload = Layout(as_tars(tmp_path / "wds", SAMPLES), "wds", "webdataset"), Workload(decode="rgb")
    dataset = IgnoresWorkers(Witness(layout, workload, 64))
    proof = judge(Side(dataset, {"batch_size": 4, "collate_fn": list}, 45, "as planted"), layout, workload, Settings(0))
    assert (proof.count, proof.num_delivered, proof.num_repeated) == (45, 90, 45)
    with pytest.raises(UsageError, match="takes no note of its worker"):
        refuse_unequal([proof])


def test_escaped_keys_are_those_of_shards_with_plain_names(tmp_path):
    """A name that packing escapes and another writer does not."""
    samples = {f"a b/{i}": fields for i, fields in enumerate(list(SAMPLES.values())[:9])}
    refuse_unequal(proofs_of([as_files(tmp_path / "files", samples), as_tars(tmp_path / "wds", samples)]))
    assert canonical_key("./a/x") == "a/x" and canonical_key("a=20b/x") == "a=20b/x" and canonical_key("a b/x") == "a=20b/x"


def test_records_and_columns_of_the_same_text(tmp_path, build_docs):
    docs, mds = build_docs("mds")
    sentences = refuse_unequal(proofs_of([docs, mds], ("torch", "shardtools")))
    assert all("the same 90 samples" in sentence and "64 with the smallest" in sentence for sentence in sentences)
    as_lines(tmp_path / "docs.jsonl", [{"text": text.replace("7", "8") if i == 7 else text} for i, text in enumerate(TEXTS)])
    with pytest.raises(UsageError, match=r"decode to the same|the same samples"):
        refuse_unequal(proofs_of([docs, mds], ("torch", "shardtools"), decode="text"))


@pytest.fixture
def build_docs(tmp_path):
    from shardtools.build import run
    from shardtools.build.order import OrderWords, order_of
    from shardtools.sources import resolve_inputs

    def call(format_, **options):
        uri = as_lines(tmp_path / "docs.jsonl", [{"text": text, "id": f"d {i}"} for i, text in enumerate(TEXTS)])
        order = order_of(resolve_inputs([uri]), OrderWords(format_, source_options=options))
        run.build([uri], str(tmp_path / format_), order)
        return uri, str(tmp_path / format_)

    return call


def test_keys_out_of_records_are_found_by_the_recipe(build_docs):
    docs, wds = build_docs("wds", key="id")
    proofs = proofs_of([docs, wds])
    refuse_unequal(proofs)
    assert "d=205" in proofs[0].keys


# Fields, of every sample.

MANY = {f"{i:04d}": {"json": b'{"n": %d, "a": [1, 2]}' % i, "cls": b"%d" % (i % 7), "txt": f"Häuser {i}".encode()} for i in range(200)}
LATE = max(MANY, key=key_hash)
"""Not among the 64 that are decoded."""


def packed(source, destination, format_, **words):
    from shardtools.build import run
    from shardtools.build.order import OrderWords, order_of
    from shardtools.sources import resolve_inputs

    run.build([source], str(destination), order_of(resolve_inputs([source]), OrderWords(format_, **words)))
    return str(destination)


FIELDS = {
    "a JSON text": ({"json": b'{"n": 0, "a": [1, 3]}'}, "whose json is not the same"),
    "a number": ({"cls": b"8"}, "whose cls is not the same"),
    "a letter": ({"txt": "Häusar 0".encode()}, "whose txt is not the same"),
    "a field more": ({"id": b"1"}, "which has id only in .*: one holds fields that the other lacks"),
}


@pytest.mark.parametrize("fault", FIELDS)
def test_a_field_that_decoding_never_sees_is_seen(tmp_path, fault, one_sentence):
    """One of 200 samples, a few bytes; decoding takes the text alone."""
    fields, words = FIELDS[fault]
    uris = [as_files(tmp_path / "files", MANY), as_tars(tmp_path / "wds", {**MANY, LATE: {**MANY[LATE], **fields}}, per_shard=50)]
    proofs = proofs_of(uris, decode="text", text_key="txt")
    assert LATE not in proofs[0].decoded
    with pytest.raises(UsageError, match=f"got 1 of 200 that differ, such as {LATE}, {words}") as caught:
        refuse_unequal(proofs)
    one_sentence(caught.value)


def test_values_are_the_same_however_a_format_stores_them(tmp_path):
    """Labels as text and as eight bytes, JSON with other spaces, text; by the library's own columns, and by ours."""
    files = as_files(tmp_path / "files", MANY)
    rows = {
        key: {"json": json.loads(fields["json"]), "cls": int(fields["cls"]), "txt": fields["txt"].decode()} for key, fields in MANY.items()
    }
    foreign = as_mds(tmp_path / "mds", rows, {"json": "json", "cls": "int", "txt": "str"})
    ours = packed(files, tmp_path / "ours", "mds")
    tars = as_tars(tmp_path / "wds", {key: {**fields, "json": fields["json"].replace(b" ", b"")} for key, fields in MANY.items()})
    proofs = proofs_of([files, foreign, ours, tars], ("shardtools",), decode="text", text_key="txt")
    for sentence in refuse_unequal(proofs):
        assert "every field of 200 samples is the same (cls, json, txt)" in sentence
    rows[LATE]["cls"] += 1
    other = as_mds(tmp_path / "other", rows, {"json": "json", "cls": "int", "txt": "str"})
    with pytest.raises(UsageError, match=f"such as {LATE}, whose cls is not the same"):
        refuse_unequal([*proofs[:1], *proofs_of([other], ("shardtools",), decode="text", text_key="txt")])


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_what_packing_adds_to_files_is_no_difference(tmp_path, format_):
    """A label by folder, and the path."""
    files = as_files(tmp_path / "files", SAMPLES)
    shards = packed(files, tmp_path / format_, format_, source_options={"label_from": "dir", "keep_path": ""})
    (sentence,) = refuse_unequal(proofs_of([files, shards], ("shardtools",)))
    assert "every field but cls, path, which packing made, of 45 samples is the same (json, png)" in sentence


def test_pictures_of_several_kinds_are_one_column(tmp_path):
    """Files and tars keep each its own extension."""
    samples = {f"{i:04d}": {("jpg" if i % 2 else "png"): SAMPLES[key]["png"]} for i, key in enumerate(SAMPLES)}
    files = as_files(tmp_path / "files", samples)
    shards = [packed(files, tmp_path / format_, format_) for format_ in ("wds", "mds")]
    proofs = proofs_of([files, *shards], ("shardtools",))
    assert {name for fields in proofs[2].fields.values() for name in fields} == {"image"}
    for sentence in refuse_unequal(proofs):
        assert "every field of 45 samples is the same (jpg, png)" in sentence


def test_where_fields_are_not_compared_it_is_said(build_docs):
    docs, mds = build_docs("mds")
    (sentence,) = refuse_unequal(proofs_of([docs, mds], ("shardtools",)))
    assert "fields were not compared but by decoding 64 samples, since records are stored as their fields" in sentence
    docs, wds = build_docs("wds")
    (sentence,) = refuse_unequal(proofs_of([docs, wds], ("shardtools",)))
    assert "every field of 90 samples is the same (json)" in sentence


# More samples than are read whole.


@pytest.fixture
def only_twenty(monkeypatch):
    for module in (child, refusal):
        monkeypatch.setattr(module, "WHOLE_SAMPLES", 20)


@pytest.mark.usefixtures("only_twenty")
def test_of_many_samples_keys_come_from_names_and_headers(tmp_path):
    uris = [as_files(tmp_path / "files", SAMPLES), as_tars(tmp_path / "wds", SAMPLES), as_mds(tmp_path / "mds", SAMPLES, ENCODINGS)]
    proofs = proofs_of(uris, shuffle=False)
    assert [(proof.count, proof.num_delivered, proof.whole, proof.keys) for proof in proofs] == [(45, 20, False, ())] * 3
    for sentence in refuse_unequal(proofs):
        assert "the same 45 samples by the keys in names and headers; the first 20 delivered came once each; " in sentence
        assert int(sentence.split("once each; ")[1].split()[0]) > 3


@pytest.mark.usefixtures("only_twenty")
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({key: fields for key, fields in SAMPLES.items() if key != "00/0044"}, "got 45 in .* and 44 in .*, with other keys"),
        ({("x/44" if key == "00/0044" else key): fields for key, fields in SAMPLES.items()}, "with other keys"),
    ],
)
def test_of_many_samples_one_that_differs_is_seen_by_its_key(tmp_path, samples, message):
    proofs = proofs_of([as_files(tmp_path / "files", SAMPLES), as_tars(tmp_path / "wds", samples)])
    with pytest.raises(UsageError, match=message):
        refuse_unequal(proofs)


@pytest.mark.usefixtures("only_twenty")
def test_of_many_samples_one_from_elsewhere_or_twice_is_seen(tmp_path):
    layout, workload = Layout(as_tars(tmp_path / "wds", SAMPLES), "wds", "webdataset"), Workload(decode="rgb")
    witness = Witness(layout, workload, 64)
    foreign = IgnoresWorkers(lambda raw: witness({**raw, "__key__": raw["__key__"] + "x"}))
    proof = judge(Side(foreign, {"batch_size": 4, "collate_fn": list}, 45, ""), layout, workload, Settings(2))
    assert proof.num_foreign > 0
    with pytest.raises(UsageError, match=r"got .* others"):
        refuse_unequal([replace(proof, num_repeated=0)])


# Tokens.

PACKINGS = {
    "bfd": {"seq_len": "24"},
    "bfd, truncated": {"seq_len": "24", "long_docs": "truncate"},
    "bfd, dropped": {"seq_len": "24", "long_docs": "drop"},
    "concat": {"seq_len": "24", "packing": "concat"},
    "concat, truncated": {"seq_len": "24", "packing": "concat", "long_docs": "truncate"},
    "concat without ends": {"seq_len": "24", "packing": "concat", "eos": "none"},
    "none": {},
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("format_", ["wds", pytest.param("mds", marks=pytest.mark.slow)])
def test_tokens_are_the_same_under_every_packing(tmp_path, packing, format_):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in TEXTS])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, format_, PACKINGS[packing])
    documents = ids_of(tokenizer, TEXTS)
    if "without ends" in packing:
        documents = [tokens[:-1] for tokens in documents]
    lengths = [len(tokens) for tokens in documents]
    num_tokens = {"truncated": sum(min(n, 24) for n in lengths), "dropped": sum(n for n in lengths if n <= 24)}.get(
        packing.split(", ")[-1], sum(lengths)
    )
    proofs = proofs_of([uri, packed], ("torch", "shardtools"), tokenizer=tokenizer)
    (sentence,) = refuse_unequal(proofs)
    assert f"{num_tokens:,} tokens" in sentence
    assert ("stream" in sentence) == packing.startswith("concat")
    assert ("was not compared" in sentence) == ("without ends" in packing)
    assert proofs[0].num_tokens == sum(lengths) and proofs[1].num_tokens == num_tokens
    assert proofs[0].count is None and proofs[1].count is not None


@pytest.mark.parametrize("packing", ["bfd", "concat", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["a letter", "a document less", "a document twice", "order"])
def test_text_that_is_not_what_was_packed_is_refused(tmp_path, packing, fault, one_sentence):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    packed_from = as_lines(tmp_path / "packed.jsonl", [{"text": text} for text in TEXTS])
    packed = pack_tokens(packed_from, tmp_path / "rows", tokenizer, "wds", PACKINGS[packing])
    texts = {
        "a letter": [*TEXTS[:40], TEXTS[40].replace("H", "h"), *TEXTS[41:]],
        "a document less": TEXTS[:40] + TEXTS[41:],
        "a document twice": TEXTS[:40] + TEXTS[39:],
        "order": [*TEXTS[:40], TEXTS[41], TEXTS[40], *TEXTS[42:]],
    }[fault]
    proofs = proofs_of([as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in texts]), packed], tokenizer=tokenizer)
    if fault == "order" and packing != "concat":
        assert "in any order" in refuse_unequal(proofs)[0] or "whole documents" in refuse_unequal(proofs)[0]
        return
    with pytest.raises(UsageError, match=r"expected the same tokens in .*docs.jsonl") as caught:
        refuse_unequal(proofs)
    one_sentence(caught.value)


def test_tokens_that_a_tail_dropped_are_missed(tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in TEXTS])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, "wds", {"seq_len": "24", "packing": "concat", "tail": "drop"})
    with pytest.raises(UsageError, match="expected the same tokens"):
        refuse_unequal(proofs_of([uri, packed], tokenizer=tokenizer))


def test_another_tokenizer_is_refused_before_anything_is_read(tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in TEXTS])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, "wds", {"seq_len": "24"})
    file = tmp_path / "tokenizer" / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "truncation": None}, indent=3))
    with pytest.raises(UsageError, match="expected the tokenizer the dataset was packed with"):
        proofs_of([uri, packed], tokenizer=tokenizer)


def test_two_sides_of_packed_rows_are_compared_row_by_row(tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in TEXTS])
    sides = [pack_tokens(uri, tmp_path / format_, tokenizer, format_, {"seq_len": "24"}) for format_ in ("wds", "mds")]
    (sentence,) = refuse_unequal(proofs_of(sides, ("webdataset", "shardtools"))[::2])
    assert "samples, each delivered once" in sentence
    other = pack_tokens(uri, tmp_path / "other", tokenizer, "mds", {"seq_len": "24", "packing": "concat"})
    with pytest.raises(UsageError):
        refuse_unequal(proofs_of([sides[0], other], ("webdataset", "shardtools"))[::2])


def test_compressed_text_is_the_same_text(tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for text in TEXTS])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, "wds", {"seq_len": "24"})
    with gzip.open(uri + ".gz", "wb") as file:
        file.write((tmp_path / "docs.jsonl").read_bytes())
    refuse_unequal(proofs_of([uri + ".gz", packed], tokenizer=tokenizer))


# The process of its own.


def settled_side(tmp_path, kind="wds"):
    uri = as_tars(tmp_path / "wds", SAMPLES) if kind == "wds" else as_mds(tmp_path / "mds", SAMPLES, ENCODINGS)
    (layout,) = layouts_of([uri])
    return layout, settle_workload([layout], Workload(batch_size=4, image_side=8))


@pytest.mark.parametrize("kind", ["wds", pytest.param("mds", marks=pytest.mark.slow)])
def test_a_fresh_process_proves_the_same_and_leaves_nothing(tmp_path, temporary, kind):
    layout, workload = settled_side(tmp_path, kind)
    blocks = set(os.listdir("/dev/shm"))
    proof = prove(layout, workload, Settings(2))
    assert isinstance(proof, Proof)
    assert proof == prove_here(layout, workload, Settings(2))
    assert os.listdir(temporary) == []
    if kind == "mds":  # which alone leaves numbered blocks; others' come and go
        assert {name for name in set(os.listdir("/dev/shm")) - blocks if name[:2] == "10"} == set()
    assert json.loads(json.dumps(proof.as_json()))["count"] == 45


@pytest.mark.slow
def test_reading_that_fails_or_hangs_is_one_sentence(tmp_path, temporary):
    layout, workload = settled_side(tmp_path)
    for fault, settings in (("fail", {}), ("hang", {"timeout_seconds": 3.0})):
        planted = replace(workload, decode=f"planted_{fault}:decode")
        code = "import time\ndef decode(fields):\n    " + ("raise ValueError('planted')" if fault == "fail" else "time.sleep(600)") + "\n"
        (tmp_path / f"planted_{fault}.py").write_text(code)
        script = tmp_path / f"ask_{fault}.py"
        script.write_text(ASK.format(layout=layout, workload=planted, settings=settings))
        begun = time.monotonic()
        # Modules beside the script are found by it, and by its child through the environment.
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}", "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert time.monotonic() - begun < 60
        kind, message = done.stdout.split(": ", 1)
        assert kind == "ShardtoolsError", done.stderr
        assert ("planted" if fault == "fail" else "longer than 3 seconds") in message
        assert os.listdir(temporary) == []
        wait_until(lambda: not processes_with(str(temporary), "cmdline"), 10)


ASK = """
from shardtools.bench.equality import prove
from shardtools.bench.spec import *
from shardtools.errors import ShardtoolsError
try:
    prove({layout!r}, {workload!r}, Settings(2), **{settings!r})
except ShardtoolsError as error:
    print(f"{{type(error).__name__}}: {{error}}", end="")
"""


def test_a_process_that_dies_tells_its_last_words(tmp_path, monkeypatch):
    layout, workload = settled_side(tmp_path)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ShardtoolsError, match="its process ended: it said nothing"):
        prove(layout, workload, Settings(2))


def test_digests_follow_values_and_their_types():
    import numpy as np
    import torch

    values = [1, "1", b"1", [1], (1, 2), {"a": 1}, np.float32(1), torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), np.arange(3)]
    assert len({digest_of(value) for value in values}) == len(values)
    assert digest_of({"a": 1, "b": [b"x"]}) == digest_of({"b": [b"x"], "a": 1})
