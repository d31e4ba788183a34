"""What bench says was fetched from a bucket is what a proxy saw pass; stops counts that miss a worker, a reader or a repeat, and readers
that deliver other samples from a bucket than from a folder.
"""

import os
import secrets
import shutil
import tempfile
from collections import Counter

import pytest
from bench_sides import QUIET, resized
from counting_proxy import counting_proxy
from s3_sides import RECORDS, SAMPLES, local_sides, make_aws, upload
from s3_stores import use

from shardtools.bench.not_measured import Reasons
from shardtools.bench.places import is_one, is_remote, names_in, stored_bytes, version_of
from shardtools.bench.readers import layouts_of, open_side
from shardtools.bench.spec import Layout, Settings, TrialSpec, Workload
from shardtools.bench.traffic import PIPED, Traffic
from shardtools.bench.trial._running import trial_loader
from shardtools.errors import UsageError

pytestmark = [
    *QUIET,
    # webdataset, StreamingDataset and botocore leave closing their files and sockets to Python.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def quiet_libraries(streaming, webdataset):
    """Imported once, with their own warnings."""


@pytest.fixture(scope="module")
def uris(s3_store, tmp_path_factory):
    local = local_sides(tmp_path_factory.mktemp("s3-sides"))
    return upload(s3_store["environment"], local, secrets.token_hex(6)), local


@pytest.fixture
def passed(s3_store, monkeypatch, tmp_path):
    """What passes between this process, its children and the store."""
    with counting_proxy(s3_store["endpoint"]) as found:
        endpoints = dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL"), found.endpoint)
        use(s3_store["environment"] | endpoints, monkeypatch)
        monkeypatch.setenv("PATH", make_aws(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        yield found


def counted(layout: Layout, passed, num_workers: int = 2, **others) -> tuple[dict, list, Reasons]:
    """An epoch, as a trial reads and counts it, with what it delivered."""
    workload = Workload(batch_size=8, image_side=6, decode="none" if layout.kind == "jsonl" else "rgb")
    settings, reasons = Settings(num_workers, persistent_workers=False, **others), Reasons()
    traffic = Traffic(layout, num_workers)
    passed.requests.clear()
    with traffic.counting():
        side = open_side(layout, workload, settings)
        try:
            loader = trial_loader(TrialSpec(layout, workload, settings), side.dataset, side.loader_kwargs, traffic)
            sent = list(loader)
        finally:
            side.close()
    return traffic.found(sum(one.num_samples for one in sent), 2.0, reasons), [one.batch for one in sent], reasons


def ending(path: str) -> str:
    return os.path.splitext(path)[1][1:]


KINDS = [("files", "torch"), ("mds", "streaming"), ("wds", "shardtools"), ("mds", "shardtools")]


@pytest.mark.parametrize(("kind", "reader"), KINDS)
@pytest.mark.parametrize(
    ("num_workers", "how"),
    [
        pytest.param(2, "fork", id="forked"),
        pytest.param(0, None, id="alone", marks=pytest.mark.slow),
        pytest.param(2, "spawn", id="spawned", marks=pytest.mark.slow),
    ],
)
def test_requests_and_bytes_are_those_that_passed(uris, passed, kind, reader, num_workers, how):
    found, images, _ = counted(Layout(uris[0][kind], kind, reader), passed, num_workers, start_method=how)
    assert sorted(image.numpy().tobytes() for batch in images for image in batch) == resized(SAMPLES, 6)
    assert found["samples"] == 45
    assert (found["requests"], found["bytes"]) == (len(passed.requests), passed.num_bytes)
    assert found["requests"] > 0 and found["MBps"] == pytest.approx(found["bytes"] / 2e6)
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] and latency["mean"] < 20_000
    assert os.listdir(tempfile.gettempdir()) == []


def test_forked_workers_do_not_share_the_connection_the_index_came_by(uris, passed):
    """Two that ask by one socket take each other's answers: now and then a shard held the bytes of another."""
    side = open_side(Layout(uris[0]["mds"], "mds", "streaming"), Workload(batch_size=8, image_side=6, decode="rgb"), Settings(2))
    try:
        assert any(path.endswith("index.json") for path in passed.of("GET"))
        assert [stream._downloader._s3_client for stream in side.dataset.streams] == [None]
    finally:
        side.close()


def test_a_small_file_is_one_request(uris, passed):
    found, _, _ = counted(Layout(uris[0]["files"], "files", "torch"), passed)
    payload = sum(len(value) for fields in SAMPLES.values() for value in fields.values())
    assert Counter(ending(path) for path in passed.of("GET") if ending(path)) == {"json": 45, "png": 45}
    listing = sum(size for _, path, size in passed.requests if not ending(path))
    assert (found["requests"], found["bytes"]) == (len(passed.requests), payload + listing)


def test_a_record_is_one_request_of_its_bytes(uris, passed):
    found, texts, _ = counted(Layout(uris[0]["jsonl"], "jsonl", "torch"), passed)
    # Once to know where lines begin, then line by line.
    gets = [size for how, path, size in passed.requests if how == "GET" and path.endswith("jsonl")]
    assert len(gets) == 1 + len(RECORDS) == 1 + sum(len(lengths) for _, lengths in texts)
    assert sum(gets) == 2 * os.path.getsize(uris[1]["jsonl"])
    assert (found["requests"], found["bytes"]) == (len(passed.requests), passed.num_bytes)


def test_of_a_pipe_the_bytes_alone_are_counted(uris, passed):
    found, images, reasons = counted(Layout(uris[0]["wds"], "wds", "webdataset"), passed)
    assert sorted(image.numpy().tobytes() for batch in images for image in batch) == resized(SAMPLES, 6)
    tars = [os.path.join(uris[1]["wds"], name) for name in os.listdir(uris[1]["wds"])]
    assert found["bytes"] == sum(map(os.path.getsize, tars)) == sum(size for _, path, size in passed.requests if ending(path) == "tar")
    assert found["requests"] is None and found["latency_ms"] is None
    assert {entry.metric: entry.reason for entry in reasons.listed()} == dict.fromkeys(("fetched.latency_ms", "fetched.requests"), PIPED)


def test_latency_is_until_the_answer_begins(uris, passed):
    passed.delay_seconds = 0.1
    found, _, _ = counted(Layout(uris[0]["mds"], "mds", "shardtools"), passed, 0)
    assert found["latency_ms"]["p50"] >= 100 and found["latency_ms"]["mean"] >= 100


@pytest.mark.usefixtures("passed")
def test_a_missing_program_is_told_before_anything_is_read(uris, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("aws") is None
    with pytest.raises(UsageError, match=r"^expected the program aws for webdataset, .*take --reader shardtools$"):
        open_side(Layout(uris[0]["wds"], "wds", "webdataset"), Workload(decode="none"), Settings(0))


@pytest.mark.usefixtures("passed")
def test_layouts_are_told_by_what_lies_there(uris):
    found = layouts_of([uris[0][kind] for kind in ("files", "jsonl", "wds", "mds")])
    assert [(layout.kind, layout.reader) for layout in found] == [
        ("files", "torch"),
        ("jsonl", "torch"),
        ("wds", "webdataset"),
        ("mds", "streaming"),
    ]


@pytest.mark.usefixtures("passed")
def test_places_of_buckets(uris):
    wds, lines = uris[0]["wds"], uris[0]["jsonl"]
    assert is_remote(wds) and not is_remote(uris[1]["wds"]) and not is_remote(f"file://{uris[1]['wds']}")
    assert is_one(lines) and not is_one(wds)
    assert sorted(names_in(wds)) == sorted(os.listdir(uris[1]["wds"])) and names_in(f"{wds}-none") is None
    assert stored_bytes(wds) == stored_bytes(uris[1]["wds"]) and stored_bytes(lines) == os.path.getsize(uris[1]["jsonl"])


def test_the_version_changes_with_an_object(s3_store, s3_uri):
    from s3_stores import client_of

    client, prefix = client_of(s3_store["environment"]), s3_uri.removeprefix("s3://tests/")
    versions = []
    for body in (b"one", b"two", b"one"):
        client.put_object(Bucket="tests", Key=f"{prefix}/a", Body=body)
        versions.append(version_of(s3_uri))
    assert versions[0] == versions[2] != versions[1]


def test_what_nobody_fetched_has_no_latency():
    reasons = Reasons()
    found = Traffic(Layout("s3://b/mds", "mds", "streaming"), 1).found(10, 1.0, reasons)
    assert (found["requests"], found["bytes"], found["latency_ms"]) == (0, 0, None)
    assert [entry.metric for entry in reasons.listed()] == ["fetched.latency_ms"]


def test_percentiles_are_right_within_a_hundredth():
    traffic = Traffic(Layout("s3://b/mds", "mds", "streaming"), 0)
    for number in range(1, 101):
        traffic._request(number / 1000)
    latency = traffic.found(1, 1.0, Reasons())["latency_ms"]
    assert latency["mean"] == pytest.approx(50.5)
    assert latency["p50"] == pytest.approx(50, rel=0.03) and latency["p99"] == pytest.approx(99, rel=0.03)
