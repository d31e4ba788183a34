"""Stops bad lines that pass, good lines that fall with them, budgets that are off by one, and counts that do not add up."""

import json
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shardtools import partitions as partitions_module
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, ShardtoolsError, UsageError
from shardtools.manifest import Ledger
from shardtools.sources._lines import Places
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.jsonl import Jsonl
from shardtools.units import Budget

GOOD = [b'{"a": 1, "t": "x"}', b'{"a": 2, "t": "\xc3\xa9"}', b'{"a": 3, "t": ""}']
DEPTH = 100_000


class Bad(NamedTuple):
    line: bytes
    reason: str
    says: str


BAD_LINES = {
    "a list": Bad(b"[1, 2]", "not-an-object", "got list"),
    "a text": Bad(b'"text"', "not-an-object", "got str"),
    "a number": Bad(b"3", "not-an-object", "got int"),
    "null": Bad(b"null", "not-an-object", "got NoneType"),
    "true": Bad(b"true", "not-an-object", "got bool"),
    "NaN": Bad(b'{"a": NaN, "t": "x"}', "invalid-json", "NaN"),
    "Infinity": Bad(b'{"a": Infinity, "t": "x"}', "invalid-json", "Infinity"),
    "-Infinity": Bad(b'{"a": -Infinity, "t": "x"}', "invalid-json", "Infinity"),
    "a number that is too large": Bad(b'{"a": 1e999, "t": "x"}', "invalid-json", "infinity"),
    "half a pair, high": Bad(b'{"a": 1, "t": "\\ud83d"}', "lone-surrogate", "surrogate"),
    "half a pair, low": Bad(b'{"a": 1, "t": "\\udc00 x"}', "lone-surrogate", "surrogate"),
    "half a pair, in a name": Bad(b'{"a": 1, "\\ud800": "x"}', "lone-surrogate", "surrogate"),
    "latin-1": Bad(b'{"a": 1, "t": "caf\xe9"}', "invalid-utf8", "0xe9 at position 18"),
    "a surrogate as bytes": Bad(b'{"a": 1, "t": "\xed\xa0\x80"}', "invalid-utf8", "0xed at position 15"),
    "an overlong slash": Bad(b'{"a": 1, "t": "\xc0\xaf"}', "invalid-utf8", "0xc0"),
    "a NUL byte": Bad(b'{"a": 1, "t": "\0"}', "invalid-json", "expected valid JSON"),
    "a byte order mark": Bad(b'\xef\xbb\xbf{"a": 1, "t": "x"}', "invalid-json", "expected valid JSON"),
    "a cut object": Bad(b'{"a": 1, "t": "x"', "invalid-json", "expected valid JSON"),
    "a cut text": Bad(b'{"a": 1, "t": "x', "invalid-json", "expected valid JSON"),
    "two objects": Bad(b'{"a": 1, "t": "x"}{"a": 2, "t": "x"}', "invalid-json", "expected valid JSON"),
    "a comma too many": Bad(b'{"a": 1, "t": "x",}', "invalid-json", "expected valid JSON"),
    "single quotes": Bad(b"{'a': 1, 't': 'x'}", "invalid-json", "expected valid JSON"),
    "a comment": Bad(b'{"a": 1, "t": "x"} // note', "invalid-json", "expected valid JSON"),
    "no JSON at all": Bad(b"a,t", "invalid-json", "expected valid JSON"),
    "deep lists": Bad(b'{"a": 1, "t": ' + b"[" * DEPTH + b"]" * DEPTH + b"}", "too-deep", "at most 200 deep"),
    "deep objects": Bad(b'{"a":' * DEPTH + b"1" + b"}" * DEPTH, "too-deep", "at most 200 deep"),
    "open brackets": Bad(b"[" * DEPTH, "too-deep", "at most 200 deep"),
}


@pytest.fixture
def write_lines(tmp_path) -> Callable[..., Path]:
    """Lines as a file in a folder of its own."""

    def write(lines: Sequence[bytes], name: str = "docs.jsonl", folder: str = "src") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return tmp_path / folder

    return write


def rejects_of(out: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (out / ".shardtools" / "rejects").read_text().splitlines()]


def nothing_is_published(out: Path) -> bool:
    return not (out / "shardtools.manifest").exists() and not any(path.suffix in (".tar", ".mds", ".json") for path in out.glob("*"))


def place(lines: Sequence[bytes], i: int, name: str = "docs.jsonl") -> str:
    return f"{name}, line {i + 1} (byte {sum(len(line) + 1 for line in lines[:i])})"


# Bad lines.


@pytest.mark.parametrize("format_name", ["wds", "mds"])
@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_one_reject_with_file_line_byte_and_reason(write_lines, build, tmp_path, one_sentence, case, format_name):
    bad = BAD_LINES[case]
    lines = [GOOD[0], b"", GOOD[1], bad.line, GOOD[2]]
    source = write_lines(lines)
    with pytest.raises(BadSampleError) as caught:
        build(source, tmp_path / "strict", format_name, source=Jsonl())
    sentence = one_sentence(caught.value)
    assert place(lines, 3) in sentence and bad.says in sentence and "expected" in sentence
    assert nothing_is_published(tmp_path / "strict")

    result = build(source, tmp_path / "out", format_name, source=Jsonl(), max_bad="1")
    counts = {"read": 4, "written": 3, "rejected": 1, "filtered": 0, "rejects": {bad.reason: 1}, "blank": 1}
    assert result.manifest.ledger.as_json() == counts
    (reject,) = rejects_of(tmp_path / "out")
    assert reject.keys() == {"where", "reason", "sentence", "head"}
    assert (reject["where"], reject["reason"]) == (place(lines, 3), bad.reason)
    assert bad.says in reject["sentence"] and "\n" not in reject["sentence"] and len(reject["sentence"]) < 300
    assert reject["head"].encode("latin-1") == bad.line[:64]


@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_the_good_lines_beside_bad_ones_are_all_there(write_lines, build, read_tars, read_mds_raw, tmp_path, format_name):
    lines: list[bytes] = []
    for bad in BAD_LINES.values():
        lines += [GOOD[len(lines) % 3], bad.line, b" "]
    source = write_lines(lines)
    result = build(source, tmp_path / "out", format_name, source=Jsonl(), max_bad=str(len(BAD_LINES)))
    good = [(i, line) for i, line in enumerate(lines) if line in GOOD]
    offsets = [sum(len(line) + 1 for line in lines[:i]) for i, _ in good]
    if format_name == "wds":
        wanted = {f"docs/{offset:012d}.json": line for offset, (_, line) in zip(offsets, good, strict=True)}
        assert read_tars(tmp_path / "out") == wanted
    else:
        rows = read_mds_raw(tmp_path / "out")
        assert [row["key"] for row in rows] == [b"docs/%012d" % offset for offset in offsets]
        assert [row["t"].decode() for row in rows] == [json.loads(line)["t"] for _, line in good]
    counts: dict[str, int] = {}
    for bad in BAD_LINES.values():
        counts[bad.reason] = counts.get(bad.reason, 0) + 1
    assert result.manifest.ledger.rejects == counts
    assert [reject["where"] for reject in rejects_of(tmp_path / "out")] == [
        place(lines, i) for i, line in enumerate(lines) if line.strip() and line not in GOOD
    ]


def whatever_the_stack(call: Callable[[], Any], frames: int) -> Any:
    """What a call gives that many frames further down the stack."""
    return call() if frames == 0 else whatever_the_stack(call, frames - 1)


@pytest.mark.parametrize("frames", [0, 400])
@pytest.mark.parametrize(
    ("depth", "passes"), [(1, True), (199, True), (200, False), (250, False), (900, False), (1022, False), (2000, False)]
)
@pytest.mark.parametrize("tail", [b"", b"123456789012345678901234567890"], ids=["plain", "long number"])
@pytest.mark.parametrize("way", ["wds", "wds map", "mds", "mds str"])
def test_a_value_of_at_most_200_levels_is_stored_and_a_deeper_one_is_bad(
    write_lines, build, read_tars, read_mds_raw, tmp_path, depth, passes, tail, way, frames
):
    deep = b'{"t": "a", "v": ' + b"[" * depth + tail + b"]" * depth + b"}"
    lines = [b'{"t": "b", "v": [1]}', deep, b'{"t": "c", "v": [2]}']
    source = write_lines(lines)
    made = Jsonl(map=parse_mappings({"wds map": "json=v", "mds str": "t=t"}[way])) if " " in way else Jsonl()
    out = tmp_path / "out"
    result = whatever_the_stack(lambda: build(source, out, way[:3], source=made, max_bad="1"), frames)
    rows = [row["t" if way == "mds str" else "v"] for row in read_mds_raw(out)] if way[:3] == "mds" else list(read_tars(out).values())
    assert len(rows) == result.manifest.ledger.num_written == (3 if passes else 2)
    assert result.manifest.ledger.rejects == ({} if passes else {"too-deep": 1})
    if passes:
        assert rows[1].replace(b" ", b"") in (deep.replace(b" ", b""), deep[16:-1], b"a")
    else:
        (reject,) = rejects_of(out)
        assert reject["where"] == place(lines, 1) and "at most 200 deep" in reject["sentence"]


def test_many_brackets_that_do_not_lie_in_each_other_are_not_deep(write_lines, build, read_tars, tmp_path):
    line = b'{"boxes": [' + b", ".join([b"[1, {}]"] * 1000) + b'], "text": "' + b"[{" * 1000 + b'"}'
    build(write_lines([line]), tmp_path / "out", source=Jsonl())
    assert list(read_tars(tmp_path / "out").values()) == [line]


@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_places_are_looked_for_only_where_a_record_is_bad(write_lines, build, tmp_path, monkeypatch, format_name):
    """With a look at every record's place, one bad record made the work grow with the square of the lines."""
    asked: list[int] = []
    places_of = Places.of

    def counted(self: Places, block: Any) -> Callable[[int], str]:
        place = places_of(self, block)
        return lambda offset: asked.append(offset) or place(offset)

    monkeypatch.setattr(Places, "of", counted)
    lines = [b'{"k": "%d", "a": 1, "t": "x"}' % i for i in range(2000)]
    lines[1200] = b'{"k": null, "a": 1, "t": "x"}'
    lines[1300] = b'{"k": "1300", "a": 1, "t": 5}'
    made = Jsonl(key="k", map=parse_mappings("a=a,txt=t"))
    result = build(write_lines(lines), tmp_path / "out", format_name, source=made, max_bad="2")
    assert result.manifest.ledger.rejects == {"no-key": 1, "wrong-type": 1}
    assert len(asked) == 2


def test_a_late_misfit_and_an_unknown_field_are_counted_by_their_reasons(write_lines, build, tmp_path):
    lines = [b'{"a": 1}'] * 1000 + [b'{"a": "x"}', b'{"a": 1, "b": 2}', b"{}", b'{"a": 2.5}', b"[]"]
    result = build(write_lines(lines), tmp_path / "out", "mds", source=Jsonl(), max_bad="5")
    assert result.manifest.ledger == Ledger(1000, 0, result.manifest.ledger.rejects)
    assert result.manifest.ledger.rejects == {"wrong-type": 2, "unknown-field": 1, "missing-field": 1, "not-an-object": 1}
    found = {reject["where"] for reject in rejects_of(tmp_path / "out")}
    assert found == {place(lines, i) for i in range(1000, 1005)}


def test_no_rejects_file_is_written_where_nothing_is_rejected(write_lines, build, tmp_path):
    build(write_lines(GOOD), tmp_path / "out", source=Jsonl())
    assert not (tmp_path / "out" / ".shardtools" / "rejects").exists()


def test_the_rejects_file_is_part_of_the_manifest(write_lines, build, digests, tmp_path):
    result = build(write_lines([*GOOD, b"bad"]), tmp_path / "out", source=Jsonl(), max_bad="1")
    entries = {file.name: file.sha256 for file in result.manifest.files}
    assert entries[".shardtools/rejects"] == digests(tmp_path / "out")[".shardtools/rejects"]


# Blank lines and empty files.


def test_blank_lines_are_no_samples_and_not_bad(write_lines, build, read_tars, tmp_path):
    lines = [b"", b"\r", GOOD[0], b"   ", b"\t\r", GOOD[1] + b"\r", b"", GOOD[2], b"", b""]
    result = build(write_lines(lines), tmp_path / "out", source=Jsonl())
    assert result.manifest.ledger == Ledger(3, num_blank=7)
    assert list(read_tars(tmp_path / "out").values()) == GOOD


@pytest.mark.parametrize("lines", [[], [b""], [b" ", b"\r"], [b"\xef\xbb\xbf"]], ids=repr)
def test_input_without_a_record_is_refused(write_lines, build, tmp_path, one_sentence, lines):
    for format_name in ("wds", "mds"):
        with pytest.raises(UsageError, match="expected at least one record") as caught:
            build(write_lines(lines), tmp_path / "out", format_name, source=Jsonl())
        one_sentence(caught.value)


def test_the_first_bad_line_of_an_input_without_a_record_is_named(write_lines, build, tmp_path, one_sentence):
    with pytest.raises(
        UsageError, match=r"first this one: docs\.jsonl, line 3 \(byte 2\): expected one JSON object a line, got list"
    ) as caught:
        build(write_lines([b"", b" "[:0], b"[1]", b"worse"]), tmp_path / "out", source=Jsonl(), max_bad="100%")
    one_sentence(caught.value)
    source = write_lines([], "docs.jsonl.gz", "damaged")
    (source / "docs.jsonl.gz").write_bytes(b"plain text")
    with pytest.raises(
        UsageError, match=r"first this one: docs\.jsonl\.gz, line 1 \(byte 0\): expected a sound compressed stream"
    ) as caught:
        build(source, tmp_path / "out", source=Jsonl())
    one_sentence(caught.value)


def test_input_without_a_good_record_is_refused_whatever_the_budget(write_lines, build, tmp_path, one_sentence):
    with pytest.raises(ShardtoolsError, match="expected at least one record") as caught:
        build(write_lines([b"bad"] * 5), tmp_path / "out", source=Jsonl(), max_bad="100%")
    one_sentence(caught.value)
    assert nothing_is_published(tmp_path / "out")


def test_records_that_are_all_rejected_publish_nothing(write_lines, build, tmp_path, one_sentence):
    with pytest.raises(ShardtoolsError, match="expected at least one sample to write, got none") as caught:
        build(write_lines([b'{"id": null}'] * 5), tmp_path / "out", "mds", source=Jsonl(key="id"), max_bad="100%")
    one_sentence(caught.value)
    assert nothing_is_published(tmp_path / "out")


def test_a_key_that_no_first_record_has_is_refused_before_any_is_rejected(write_lines, build, tmp_path, one_sentence):
    with pytest.raises(UsageError, match=r"in --key, among a, b, got 'a\.b'; name one of these") as caught:
        build(write_lines([b'{"a": {"b": 1}}', b'{"b": 2}']), tmp_path / "out", "mds", source=Jsonl(key="a.b"), max_bad="100%")
    one_sentence(caught.value)


def test_an_empty_file_beside_others_is_nothing(write_lines, build, tmp_path):
    write_lines([], "a.jsonl")
    write_lines([b""], "b.jsonl")
    result = build(write_lines(GOOD, "c.jsonl"), tmp_path / "out", source=Jsonl())
    assert result.manifest.ledger == Ledger(3, num_blank=1)


# Budgets.


def with_bad(count: int, num_bad: int, seed: int = 3) -> list[bytes]:
    """``count`` lines of which ``num_bad``, not the first, are bad."""
    bad = set(random.Random(seed).sample(range(1, count), num_bad))
    return [b"bad %d" % i if i in bad else b'{"a": %d}' % i for i in range(count)]


@pytest.mark.parametrize("engine", [Serial(), Processes(2)], ids=["serial", "processes"])
@pytest.mark.parametrize(
    ("budget", "num_bad", "passes"), [("0", 0, True), ("0", 1, False), ("3", 3, True), ("3", 4, False), ("1%", 2, True), ("1%", 3, False)]
)
def test_a_budget_is_exact(write_lines, build, tmp_path, monkeypatch, one_sentence, engine, budget, num_bad, passes):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 512)
    source = write_lines(with_bad(200, num_bad))

    def run() -> Any:
        return build(source, tmp_path / "out", source=Jsonl(), max_bad=budget, engine=engine, shard_bytes=20480)

    if passes:
        assert run().manifest.ledger.as_json()["rejected"] == num_bad
        return
    with pytest.raises(BadSampleError) as caught:
        run()
    sentence = one_sentence(caught.value)
    assert "--max-bad" in sentence and (budget == "0" or budget in sentence)
    assert nothing_is_published(tmp_path / "out")


def test_a_budget_counts_over_all_partitions_and_files(write_lines, build, tmp_path, monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 100)
    for name in "abc":
        source = write_lines([*GOOD, b"bad"] * 2, f"{name}.jsonl")
    with pytest.raises(BadSampleError):
        build(source, tmp_path / "five", source=Jsonl(), max_bad="5")
    result = build(source, tmp_path / "six", source=Jsonl(), max_bad="6")
    assert result.manifest.ledger.as_json() == {"read": 24, "written": 18, "rejected": 6, "filtered": 0, "rejects": {"invalid-json": 6}}
    assert [reject["where"][:15] for reject in rejects_of(tmp_path / "six")] == [
        f"{name}.jsonl, line {n}" for name in "abc" for n in (4, 8)
    ]


def test_a_run_over_its_budget_may_be_repeated_with_a_larger_one(write_lines, build, digests, tmp_path, monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 512)
    source = write_lines(with_bad(300, 5))
    for budget in ("0", "4", "1%"):
        with pytest.raises(BadSampleError):
            build(source, tmp_path / "out", source=Jsonl(), max_bad=budget)
    build(source, tmp_path / "out", source=Jsonl(), max_bad="5")
    build(source, tmp_path / "new", source=Jsonl(), max_bad="2%")
    assert digests(tmp_path / "out") == digests(tmp_path / "new")


def test_the_first_bad_sample_is_named_where_none_is_allowed(write_lines, build, tmp_path, one_sentence):
    lines = [*GOOD, b"bad", *GOOD, b"worse"]
    with pytest.raises(BadSampleError) as caught:
        build(write_lines(lines), tmp_path / "out", source=Jsonl())
    sentence = one_sentence(caught.value)
    assert place(lines, 3) in sentence and place(lines, 7) not in sentence and "--max-bad N" in sentence


@pytest.mark.parametrize("text", ["0.57%", "0.69%", "1.13%", "1.14%", "0.1%", "0.3%", "33.3%", "99.9%", "100%", "0%"])
def test_a_percentage_is_the_decimal_that_was_typed(text):
    share = Fraction(text.removesuffix("%")) / 100
    budget = Budget.parse(text)
    for num_read in (1, 100, 300, 1000, 9999, 10_000, 10**6):
        most = int(share * num_read)
        assert budget.allows(most, num_read)
        assert not budget.allows(most + 1, num_read)
        assert budget.allows_so_far(most)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "101%", "%", "1 %%", "1e3", "nan%"])
def test_a_budget_that_is_none_is_refused(text, one_sentence):
    with pytest.raises(UsageError, match="--max-bad as a count") as caught:
        Budget.parse(text)
    one_sentence(caught.value)


@pytest.mark.parametrize("line", [b"\x0b", b"\x0c", b" \t\x0b\r", b"\x1c"])
def test_only_what_json_takes_for_white_space_is_a_blank_line(build, tmp_path, line):
    source = tmp_path / "v.jsonl"
    source.write_bytes(b'{"a":1}\n' + line + b'\n \t\r\n{"a":2}\n')
    with pytest.raises(BadSampleError, match="line 2"):
        build(source, tmp_path / "out", source=Jsonl())
