"""Stops cuts inside quoted cells, rows that two workers read or none, and other bytes for other workers."""

import csv
import gzip
import io
import json
import random

import pytest

from shardtools import partitions as partitions_module
from shardtools.build.order import Order
from shardtools.build.planning import plan_build
from shardtools.build.run import Listener
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.formats.mds import Mds
from shardtools.plan import ShardLimit
from shardtools.sources.csv import Csv, _marks, _spans

CELLS = ["", "a", '"', '""', ",", "\n", "\r\n", '","', '"\n"', "é画", " ", "1", "x" * 40]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4096)
    monkeypatch.setattr(_marks, "_MARK_BYTES", 64)


def random_csv(numbers: random.Random, num_rows: int, end: str = "\n") -> tuple[bytes, list[list[str]]]:
    """Text by Python's own writer, with blank lines here and there, and what its reader makes of it."""
    rows = [["id", "a", "b"]]
    rows += [[str(i), *("".join(numbers.choices(CELLS, k=numbers.randint(0, 4))) for _ in range(2))] for i in range(num_rows)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=numbers.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    for row in rows:
        writer.writerow(row)
        if numbers.random() < 0.1:
            text.write(end)
    return text.getvalue().encode(), rows[1:]


@pytest.mark.parametrize("seed", range(60))
def test_every_mark_is_between_rows(seed):
    numbers = random.Random(seed)
    text, rows = random_csv(numbers, numbers.randint(1, 80), numbers.choice(["\n", "\r\n"]))
    begin = text.index(b"\n") + 1
    size = numbers.choice([1, 2, 7, 64, 1 << 20])
    body = text[begin:]
    runs = _marks.row_runs((body[i : i + size] for i in range(0, len(body), size)), begin, ",")
    assert runs[0].begin == _marks.RowMark(begin, 0) and sum(run.num_rows for run in runs) == len(rows)
    for run in runs:
        part = text[run.begin.offset : run.end.offset].decode()
        found = [row for row in csv.reader(io.StringIO(part, newline="")) if row]
        assert found == rows[run.begin.row : run.end.row], f"seed {seed}"
    assert len(runs) > 1 or len(body) < 200
    whole = _marks.RowRun(runs[0].begin, runs[-1].end)
    for run in [*runs, whole]:
        wanted = sorted(numbers.sample(range(run.begin.row, run.end.row + 1), numbers.randint(1, run.num_rows + 1)))
        begins = _marks.begins_of(run, wanted, iter([text[run.begin.offset :]]), ",")
        for row in wanted:
            rest = [found for found in csv.reader(io.StringIO(text[begins[row] :].decode(), newline="")) if found]
            assert rest == rows[row:]


UNPROVEN = {
    "quote in a cell": b'a"b,c\n' * 50,
    "cell after a quote": b'"a"b,c\n' * 50,
    "quotes in a cell": b'a""b,c\n' * 50,
    "quote without end": b"a,b\n" * 50 + b'a,"b\n',
    "carriage returns": b"a,b\r" * 50,
    "a last carriage return": b"a,b\n" * 50 + b"\r",
}


@pytest.mark.parametrize("kind", UNPROVEN)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_what_does_not_prove_its_rows_is_not_cut(kind, size):
    text = UNPROVEN[kind]
    with pytest.raises(_marks.UnprovenError):
        _marks.row_runs((text[i : i + size] for i in range(0, len(text), size)), 0, ",")


def test_a_file_that_cannot_be_cut_is_one_extent_and_the_user_is_told(build, read_tars, tree, tmp_path):
    rows = [f'{i},5" pipe\n'.encode() for i in range(5000)]
    root = tree({"a.csv": b"id,text\n" + b"".join(rows), "b.csv": b"id,text\n" + b"".join(rows).replace(b'"', b"")})
    notes: list[str] = []
    result = build(
        root, tmp_path / "out", "wds", source=Csv(), listener=Listener(on_plan=lambda planned: notes.extend(planned.survey.notes))
    )
    assert any("read from end to end by one worker" in note and "a.csv" in note and "b.csv" not in note for note in notes)
    assert len(result.survey.partitions) > 3
    records = [json.loads(value) for value in read_tars(tmp_path / "out").values()]
    assert records == [{"id": i, "text": text} for text in ('5" pipe', "5 pipe") for i in range(5000)]


@pytest.fixture
def folder(tree):
    numbers = random.Random(5)
    return tree({f"{name}.csv": random_csv(numbers, count)[0] for name, count in (("a", 1500), ("b", 40), ("c", 400))})


def expected_records(folder):
    for name in ("a", "b", "c"):
        yield from csv.DictReader(io.StringIO((folder / f"{name}.csv").read_bytes().decode(), newline=""))


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_any_workers_publish_the_same_files(build, digests, tmp_path, folder, format_):
    found = []
    for i, engine in enumerate([Serial(), Processes(3)]):
        result = build(folder, tmp_path / str(i), format_, source=Csv(), engine=engine, shard_bytes=20480)
        assert len(result.survey.partitions) > 8
        found.append(digests(tmp_path / str(i)))
    assert found[0] == found[1]


def test_windows_together_are_the_file(build, read_tars, tmp_path, folder):
    build(folder, tmp_path / "out", "wds", source=Csv(), shard_bytes=1 << 20)
    members = read_tars(tmp_path / "out")
    assert [{**json.loads(value), "id": str(json.loads(value)["id"])} for value in members.values()] == list(expected_records(folder))
    assert [name.removesuffix(".json") for name in members] == [
        f"{name}/{i:012d}" for name, count in (("a", 1500), ("b", 40), ("c", 400)) for i in range(count)
    ]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_number_of_samples_is_kept_across_files_and_partitions(build, read_tars, tmp_path, folder, suffix):
    if suffix:
        for path in list(folder.iterdir()):
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    result = build(folder, tmp_path / "out", "wds", source=Csv(), shard_samples=70)
    assert [shard.num_samples for shard in result.manifest.shards] == [70] * 27 + [50]
    assert len(result.survey.partitions) > 3 and len(read_tars(tmp_path / "out")) == 1940


def test_a_compressed_file_is_read_once_for_all_its_cuts(tree, monkeypatch):
    rows = b"".join(b"%d,%s\n" % (i, b"x" * 90) for i in range(2000))
    root, read = tree({"a.csv.gz": gzip.compress(b"id,text\n" + rows)}), []
    plain = _spans.text_blocks

    def counted(*given):
        for block in plain(*given):
            read.append(len(block))
            yield block

    monkeypatch.setattr(_spans, "text_blocks", counted)
    planned = plan_build([str(root)], Order(Csv(), Mds(), ShardLimit(num_samples=100)))
    # Once to count its rows, and once to find those at which it is cut.
    assert len(planned.plan.partitions) > 8 and sum(read) <= 2 * len(rows)


def test_a_small_file_is_one_extent(tree):
    root = tree({"a.csv": b"id,text\n" + b"1,x\n" * 100})
    planned = plan_build([str(root)], Order(Csv(), Mds(), ShardLimit(num_bytes=1 << 20)))
    assert [len(partition.extents) for partition in planned.plan.partitions] == [1]


def test_a_bucket_gives_what_its_folder_gives(same_as_local, folder):
    same_as_local(folder, "mds", source=Csv(), shard_bytes=65536)
