"""Trials and whole benches of buckets: counts, labels and reasons in the report, sides that differ refused, and nothing left of pipes and
copies; stops a comparison of other samples, and machines that fill up.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from importlib.resources import files

import jsonschema
import pytest
from bench_sides import QUIET
from null_walk import stale, unexplained
from s3_sides import local_sides, make_aws, upload
from s3_stores import client_of, use
from watching import processes_with, wait_until

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.equality import prove, refuse_unequal
from shardtools.bench.request import BenchRequest
from shardtools.bench.run import bench
from shardtools.bench.spec import Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import run_trial
from shardtools.errors import UsageError

pytestmark = QUIET
WORKLOAD = Workload(batch_size=4, image_side=6, decode="rgb")


@pytest.fixture(scope="module", autouse=True)
def quiet_libraries(streaming, webdataset):
    """Imported once, with their own warnings."""


@pytest.fixture(scope="module")
def uris(s3_store, tmp_path_factory):
    local = local_sides(tmp_path_factory.mktemp("s3-sides"))
    return upload(s3_store["environment"], local, secrets.token_hex(6)), local


@pytest.fixture
def place(s3_store, monkeypatch, tmp_path):
    """An environment to reach the store, and a short path for all temporary files: see ``private_folder``."""
    use(s3_store["environment"], monkeypatch)
    monkeypatch.setenv("PATH", make_aws(tmp_path / "bin") + os.pathsep + os.environ["PATH"])
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


@pytest.mark.parametrize(
    ("kind", "reader"),
    [
        ("files", "torch"),
        pytest.param("wds", "webdataset", marks=pytest.mark.slow),
        pytest.param("mds", "streaming", marks=pytest.mark.slow),
    ],
)
def test_a_trial_counts_what_it_fetched_and_leaves_nothing(uris, place, kind, reader):
    spec = TrialSpec(Layout(uris[0][kind], kind, reader), WORKLOAD, Settings(2), min_seconds=0.2, min_steps=4)
    result = run_trial(spec)
    assert (result.status, result.message, result.leftovers) == ("ok", "", [])
    fetched = result.found["fetched"]
    assert fetched["bytes"] > 0 and fetched["samples"] > 0
    assert (fetched["requests"] is None) == (reader == "webdataset")
    assert os.listdir(place) == []


@pytest.mark.slow
def test_a_bench_of_a_folder_and_buckets(uris, place):
    said: list[str] = []
    request = BenchRequest(
        (uris[1]["files"], uris[0]["files"], uris[0]["wds"]),
        readers=("torch", "shardtools"),
        workload=Workload(batch_size=4, image_side=6),
        plan=BlockPlan.fixed(1, 0),
        min_seconds=0.2,
        attribute="none",
    )
    data = bench(request, said.append).as_json()
    jsonschema.validate(data, json.loads(files("shardtools.bench.report").joinpath("schema.json").read_text("utf-8")))
    assert unexplained(data) == [] and stale(data) == []
    here, objects, shards = data["sides"]
    assert here["fetched"] is None and objects["fetched"]["requests_per_sample"] >= 2 and shards["fetched"]["bytes"] > 0
    assert objects["read_amplification"] >= 1 and objects["fetched"]["latency_ms"]["p50"] > 0
    assert objects["cache_labels"] == ["cold-data"]
    assert any("what the store itself has in memory is unknown" in caveat for caveat in data["cache"]["caveats"])
    assert any("45 samples" in sentence for sentence in data["workload"]["proved"])
    assert os.listdir(place) == []


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_a_bucket_that_holds_another_sample_is_refused(uris, s3_store):
    local = uris[1]
    changed = upload(s3_store["environment"], {"files": local["files"]}, secrets.token_hex(6))["files"]
    prefix = changed.removeprefix("s3://tests/")
    client_of(s3_store["environment"]).put_object(Bucket="tests", Key=f"{prefix}/00/0004.json", Body=b'{"n": 5}')
    proofs = [prove(Layout(uri, "files", "torch"), WORKLOAD, Settings(2)) for uri in (local["files"], changed)]
    with pytest.raises(
        UsageError, match=r"^expected the same fields in every sample .*, got 1 of 45 that differ, such as 00/0004, whose json"
    ):
        refuse_unequal(proofs)


SLOW_AWS = "#!/bin/sh\nexec sleep 600\n"
TRIAL = """
import sys, tempfile
from shardtools.bench.spec import Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import run_trial
tempfile.tempdir = sys.argv[2]
layout = Layout(sys.argv[1], "wds", "webdataset")
run_trial(TrialSpec(layout, Workload(batch_size=4, decode="rgb"), Settings(2)), lambda: print("prepared", flush=True))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what is left of a trial is told from /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_pipes_end_with_the_bench(uris, place, tmp_path, number):
    """A pipe that never gives a byte hangs in its worker."""
    (tmp_path / "bin" / "aws").write_text(SLOW_AWS)
    command = [sys.executable, "-c", TRIAL, uris[0]["wds"], place]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"prepared\n"
    time.sleep(2)
    assert processes_with(place, "environ")
    process.send_signal(number)
    process.wait(timeout=60)
    process.stdout.close()
    wait_until(lambda: not processes_with(place, "environ") and not os.listdir(place), 20)
