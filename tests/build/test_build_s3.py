"""Stops a run into a bucket from giving other bytes than the same run into a folder, from copying or reading what it need not, and from
leaving anything of a run that failed where readers, or the bill, would find it.
"""

import hashlib
import io
import json
import os
import random
import tarfile
import threading
from typing import Any

import pytest
from s3_stores import client_of
from token_oracle import as_lines, small_tokenizer
from token_oracle import pack as pack_tokens

from shardtools import partitions as partitions_module
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files
from shardtools.sources.jsonl import Jsonl
from shardtools.storage.s3 import S3

SHARD_BYTES = 20480
MIB = 1 << 20


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 48 << 10)


def files(count: int = 40, seed: int = 1) -> dict[str, bytes]:
    numbers = random.Random(seed)
    return {f"{'ab'[i % 2]}/{i:04d}.bin": numbers.randbytes(numbers.randint(0, 3000)) for i in range(count)}


class Store:
    """What lies at a URI, by a plain client."""

    def __init__(self, uri: str, client: Any) -> None:
        self.bucket, _, self.prefix = uri.removeprefix("s3://").partition("/")
        self.s3 = client

    def objects(self, below: str = "") -> dict[str, bytes]:
        prefix = f"{self.prefix}/{below}"
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", ())
        return {entry["Key"][len(prefix) :].lstrip("/"): self.get(entry["Key"]) for entry in found}

    def get(self, key: str) -> bytes:
        data: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return data

    def put(self, name: str, data: bytes) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=f"{self.prefix}/{name}", Body=data)

    def begin_upload(self, name: str) -> None:
        self.s3.create_multipart_upload(Bucket=self.bucket, Key=f"{self.prefix}/{name}")

    def uploads(self) -> list[str]:
        found = self.s3.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix + "/").get("Uploads", ())
        return [upload["Key"][len(self.prefix) + 1 :] for upload in found]


@pytest.fixture
def store(s3_uri, s3_store) -> Store:
    return Store(s3_uri, client_of(s3_store["environment"]))


class Recording(Serial):
    """Notes which partitions are built; stops before publication, or fails after so many partitions, if asked to."""

    def __init__(self, *, stop: bool = False, fail_after: int | None = None) -> None:
        for name, value in (("built", []), ("stop", stop), ("fail_after", fail_after)):
            object.__setattr__(self, name, value)

    def run(self, task, items, *rest) -> None:
        is_build = isinstance(task, BuildTask)
        super().run(task, items[: self.fail_after] if is_build else items, *rest)
        if not is_build:
            return
        self.built.extend(item.index for item in items[: self.fail_after])
        if self.fail_after is not None:
            raise StorageError("planted")
        if self.stop:
            raise KeyboardInterrupt


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The same bytes.


@pytest.mark.parametrize("format_", ["wds", "mds"])
@pytest.mark.parametrize("max_bad", ["0", "1"], ids=["final names at once", "staged"])
def test_files_give_the_bytes_that_they_give_in_a_folder(tree, build, store, s3_uri, tmp_path, format_, max_bad):
    source = tree(files())
    build(source, tmp_path / "local", format_, shard_bytes=SHARD_BYTES)
    build(source, s3_uri, format_, shard_bytes=SHARD_BYTES, max_bad=max_bad)
    assert store.objects() == contents(tmp_path / "local")
    assert len(store.objects()) > 6


@pytest.mark.parametrize("format_", [pytest.param(Wds(), marks=pytest.mark.slow), Mds()], ids=["wds", "mds"])
def test_records_give_the_bytes_that_they_give_in_a_folder(store, s3_uri, tmp_path, format_):
    lines = [json.dumps({"id": i, "text": "x" * (i % 700)}) for i in range(600)]
    (tmp_path / "docs.jsonl").write_text("\n".join([*lines, "no record"]) + "\n")
    order = Order(Jsonl(), format_, ShardLimit(SHARD_BYTES))
    for place in (str(tmp_path / "local"), s3_uri):
        result = run.build([str(tmp_path / "docs.jsonl")], place, order, run.RunOptions(budget=run.Budget.parse("1")))
        assert result.manifest.ledger.num_rejected == 1
    assert store.objects() == contents(tmp_path / "local")
    assert ".shardtools/rejects" in store.objects()


def test_tokens_give_the_bytes_that_they_give_in_a_folder(store, s3_uri, tmp_path):
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": f"the cat sat on {i} " * (i % 50)} for i in range(900)]))
    for place in (tmp_path / "local", s3_uri):
        pack_tokens(tmp_path / "docs.jsonl", place, tokenizer=tokenizer, seq_len="64", shard_size="20KiB")
    assert store.objects() == contents(tmp_path / "local")
    assert len(store.objects()) > 6


def test_sidecars_are_those_of_a_folder(tree, store, s3_uri, tmp_path):
    order = Order(Files(), Wds(), ShardLimit(SHARD_BYTES), sidecars=("dali", "energon", "wids"))
    for place in (str(tmp_path / "local"), s3_uri):
        run.build([str(tree(files(20)))], place, order)
    assert store.objects() == contents(tmp_path / "local")


def test_the_shards_are_what_tarfile_reads(tree, build, store, s3_uri):
    packed = files()
    build(tree(packed), s3_uri, shard_bytes=SHARD_BYTES)
    read = {}
    for name, data in sorted(store.objects().items()):
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                read |= {member.name: archive.extractfile(member).read() for member in archive}
    assert read == packed


# Requests that are spared.


def test_where_the_plan_fixes_all_names_nothing_is_copied_or_read_again(tree, build, s3_uri, monkeypatch):
    for name in ("place", "sha256"):
        monkeypatch.setattr(S3, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    monkeypatch.setattr(S3, "move", lambda _, source, target: source.endswith("/plan") or pytest.fail(f"moved {target}"))
    build(tree(files()), s3_uri, shard_bytes=SHARD_BYTES)


@pytest.mark.parametrize("max_bad", ["0", "1"])
def test_a_resumed_run_reads_no_shard_again_and_builds_none(tree, build, store, s3_uri, tmp_path, monkeypatch, max_bad):
    source = tree(files())
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, max_bad=max_bad, engine=Recording(stop=True))
    monkeypatch.setattr(S3, "sha256", lambda *_: pytest.fail("a shard was read"))
    engine = Recording()
    build(source, s3_uri, shard_bytes=SHARD_BYTES, max_bad=max_bad, engine=engine)
    assert engine.built == []
    build(source, tmp_path / "local", shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


def test_a_rerun_is_already_complete_and_changes_nothing(tree, build, store, s3_uri, monkeypatch):
    source = tree(files())
    build(source, s3_uri, shard_bytes=SHARD_BYTES)
    before = store.objects()
    for name in ("put", "delete", "move", "place", "create", "writer"):
        monkeypatch.setattr(S3, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    assert build(source, s3_uri, shard_bytes=SHARD_BYTES).already_complete
    assert store.objects() == before


# Nothing half published, nothing left.


@pytest.mark.parametrize("max_bad", ["0", "1"])
def test_until_it_is_published_there_is_no_dataset(tree, build, store, s3_uri, max_bad):
    with pytest.raises(KeyboardInterrupt):
        build(tree(files()), s3_uri, "mds", shard_bytes=SHARD_BYTES, max_bad=max_bad, engine=Recording(stop=True))
    names = set(store.objects())
    assert not names & {"shardtools.manifest", "index.json", "shardtools.offsets"}
    assert any(name.startswith("shard.") for name in names) == (max_bad == "0")


def test_a_part_that_was_changed_in_the_bucket_is_built_again_alone(tree, build, store, s3_uri, tmp_path):
    source = tree(files())
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    data = bytearray(store.objects()["train-000001.tar"])
    data[700] ^= 1
    store.put("train-000001.tar", bytes(data))
    engine = Recording()
    build(source, s3_uri, shard_bytes=SHARD_BYTES, engine=engine)
    assert len(engine.built) == 1
    build(source, tmp_path / "local", shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


@pytest.mark.parametrize("max_bad", ["0", "1"])
def test_a_changed_input_rebuilds_its_partition_alone(tree, build, store, s3_uri, tmp_path, max_bad):
    source = tree(files())
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, max_bad=max_bad, engine=Recording(stop=True))
    changed = next(path for path in sorted(source.rglob("b/*.bin")) if path.stat().st_size > 100)
    changed.write_bytes(b"z" * changed.stat().st_size)
    os.utime(changed, ns=(1, 1_234_567_890_123_456_789))
    engine = Recording()
    build(source, s3_uri, shard_bytes=SHARD_BYTES, engine=engine)
    assert len(engine.built) == 1
    build(source, tmp_path / "local", shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


def test_a_failed_run_of_which_nothing_is_built_leaves_no_shard(tree, build, store, s3_uri, monkeypatch):
    """Its shards have final names already, and the plan that names them goes."""
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 10 * MIB)
    source = tree(files())
    victim = source / "b" / "0039.bin"
    size = victim.stat().st_size

    def change(_):
        victim.write_bytes(b"z" * (size + 1))

    with pytest.raises(BadSampleError):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, listener=run.Listener(on_plan=change))
    assert store.objects() == {}


def test_a_failed_run_takes_no_shard_away_that_another_run_may_have_built(tree, build, store, s3_uri):
    source = tree({f"{i:04d}.bin": b"x" * 60 for i in range(600)})
    order = {"shard_bytes": 100 << 10, "max_bad": "1"}
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, **order, engine=Recording(stop=True))
    before = {name for name in store.objects() if "/staged/" in name}
    (receipt,) = [name for name in store.objects() if "/receipts/" in name]
    store.s3.delete_object(Bucket=store.bucket, Key=f"{store.prefix}/{receipt}")
    with pytest.raises(BadSampleError):
        build(source, s3_uri, **order, listener=run.Listener(on_plan=lambda _: spoil(source, ["0598.bin", "0599.bin"])))
    assert len(before) > 5 and before <= store.objects().keys()


def spoil(source, names) -> None:
    """Make bad samples of planned files."""
    for name in names:
        (source / name).write_bytes(b"z" * 5000)


def test_names_that_were_given_too_early_are_taken_back_where_fewer_shards_come_before_them(tree, build, store, s3_uri):
    source = tree(files())
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    num_before = sum(name.endswith(".tar") for name in store.objects())
    bad = [f"a/{i:04d}.bin" for i in range(0, 26, 2)]
    for name in bad:
        os.utime(source / name, (1, 1))
    listener = run.Listener(on_plan=lambda _: spoil(source, bad))
    result = build(source, s3_uri, shard_bytes=SHARD_BYTES, max_bad="50%", listener=listener)
    found = store.objects()
    shards = [name for name in found if name.endswith(".tar")]
    assert result.manifest.ledger.num_rejected == len(bad) and len(shards) < num_before
    assert {name: hashlib.sha256(found[name]).hexdigest() for name in shards} == {one.name: one.sha256 for one in result.manifest.shards}


def test_what_an_overwrite_had_not_deleted_yet_when_it_was_killed_takes_nothing_new_with_it(
    tree, build, store, s3_uri, tmp_path, monkeypatch
):
    old, new = tree(files(40, 2), "old"), tree(files(), "new")
    build(old, s3_uri, shard_bytes=SHARD_BYTES)
    real = S3.delete

    def delete(self, name):
        if name.endswith(".tar"):
            raise KeyboardInterrupt
        real(self, name)

    monkeypatch.setattr(S3, "delete", delete)
    with pytest.raises(KeyboardInterrupt):
        build(new, s3_uri, shard_bytes=SHARD_BYTES, overwrite=True)
    monkeypatch.setattr(S3, "delete", real)
    # A partition must be built again.
    changed = next(path for path in sorted(new.rglob("a/*.bin")) if path.stat().st_size > 100)
    changed.write_bytes(b"z" * changed.stat().st_size)
    os.utime(changed, (1, 1))
    build(new, s3_uri, shard_bytes=SHARD_BYTES)
    build(new, tmp_path / "local", shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


def test_uploads_that_were_never_finished_are_gone_after_publication(tree, build, store, s3_uri):
    source = tree(files())
    with pytest.raises(KeyboardInterrupt):
        build(source, s3_uri, shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    store.begin_upload("train-000000.tar")
    store.begin_upload(".shardtools/build/0123/staged/000000-000000")
    build(source, s3_uri, shard_bytes=SHARD_BYTES)
    assert store.uploads() == []


def test_overwriting_ends_the_uploads_of_earlier_runs_before_it_builds(tree, build, store, s3_uri):
    store.begin_upload("train-000000.tar")
    with pytest.raises(KeyboardInterrupt):
        build(tree(files()), s3_uri, shard_bytes=SHARD_BYTES, overwrite=True, engine=Recording(stop=True))
    assert store.uploads() == []


@pytest.mark.parametrize("has_company", [False, True])
def test_a_failed_run_ends_its_uploads_unless_another_run_lives(tree, build, store, s3_uri, has_company):
    store.begin_upload("train-000000.tar")
    if has_company:
        store.put(".shardtools/build/runs/0123", b"")
    with pytest.raises(StorageError, match="planted"):
        build(tree(files()), s3_uri, shard_bytes=SHARD_BYTES, engine=Recording(fail_after=1))
    assert len(store.uploads()) == has_company
    assert ".shardtools/build/plan" in store.objects(), "what is built is kept"


def test_an_overwrite_by_another_plan_takes_all_final_names_away_before_it_builds(tree, build, store, s3_uri, tmp_path):
    many, few = tree(files(), "many"), tree(files(10, 3), "few")
    with pytest.raises(KeyboardInterrupt):
        build(many, s3_uri, shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    with pytest.raises(UsageError, match="an unfinished build"):
        build(few, s3_uri, shard_bytes=SHARD_BYTES)
    with pytest.raises(KeyboardInterrupt):
        build(few, s3_uri, shard_bytes=SHARD_BYTES, overwrite=True, engine=Recording(stop=True))
    assert [name for name in store.objects() if not name.startswith(".shardtools/build/")] == []
    build(few, s3_uri, shard_bytes=SHARD_BYTES)
    build(few, tmp_path / "local", shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


def test_a_worker_of_a_run_that_was_overtaken_gives_no_final_name(tree, build, store, s3_uri, tmp_path):
    """It would replace a shard of the dataset that was published meanwhile."""
    old, new = tree(files(), "old"), tree(files(60, 9), "new")
    build(new, tmp_path / "local", shard_bytes=SHARD_BYTES)

    class Overtaken(Serial):
        def run(self, task, items, *rest) -> None:
            if isinstance(task, BuildTask):
                super().run(task, items[:1], *rest)
                build(new, s3_uri, shard_bytes=SHARD_BYTES, overwrite=True)
                items = items[1:]
            super().run(task, items, *rest)

    with pytest.raises(StorageError, match="removed by another run"):
        build(old, s3_uri, shard_bytes=SHARD_BYTES, engine=Overtaken())
    published = {name: data for name, data in store.objects().items() if not name.startswith(".shardtools/build/")}
    assert published == contents(tmp_path / "local")


# Two at once, and readers.


@pytest.mark.parametrize("kinds", [("0", "0"), pytest.param(("1", "1"), marks=pytest.mark.slow), ("1", "0")])
def test_two_runs_at_once_both_succeed_or_one_refuses(tree, build, store, s3_uri, tmp_path, kinds):
    source = tree(files())
    build(source, tmp_path / "local", shard_bytes=SHARD_BYTES)
    failed: list[BaseException] = []

    def pack(max_bad: str) -> None:
        try:
            build(source, s3_uri, shard_bytes=SHARD_BYTES, max_bad=max_bad)
        except StorageError as error:
            failed.append(error)

    threads = [threading.Thread(target=pack, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) < 2, failed
    if len(set(kinds)) == 1:
        assert failed == []
    build(source, s3_uri, shard_bytes=SHARD_BYTES)
    assert store.objects() == contents(tmp_path / "local")


@pytest.mark.parametrize("format_", [pytest.param("wds", marks=pytest.mark.slow), "mds"])
def test_whoever_looks_meanwhile_sees_a_whole_dataset_or_none(tree, build, store, s3_uri, format_):
    sources = [tree(files(40, seed), f"s{seed}") for seed in (1, 2)]
    watcher = Watcher(store)
    watcher.start()
    try:
        for source in [*sources, *sources]:
            build(source, s3_uri, format_, shard_bytes=SHARD_BYTES, overwrite=True)
    finally:
        watcher.stop()
    assert watcher.problems == []
    assert watcher.num_whole > 0 and watcher.num_none > 0


class Watcher(threading.Thread):
    """Polls what readers begin with, and looks at all that it names."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.store, self.problems, self.is_stopped = store, [], threading.Event()
        self.num_whole = self.num_none = 0

    def stop(self) -> None:
        self.is_stopped.set()
        self.join()

    def run(self) -> None:
        while not self.is_stopped.is_set():
            for name in ("shardtools.manifest", "index.json"):
                self.look(name)

    def look(self, name: str) -> None:
        before = self.read(name)
        if before is None:
            self.num_none += 1
            return
        content = json.loads(before)
        if name == "index.json":
            wanted = {shard["raw_data"]["basename"]: shard["raw_data"]["bytes"] for shard in content["shards"]}
        else:
            wanted = {entry["name"]: entry["bytes"] for entry in [*content["shards"], *content["files"]]}
        listed = self.store.s3.list_objects_v2(Bucket=self.store.bucket, Prefix=self.store.prefix + "/").get("Contents", ())
        found = {entry["Key"][len(self.store.prefix) + 1 :]: entry["Size"] for entry in listed}
        # Only what is still the same afterwards was the same while it was looked at.
        if self.read(name) == before:
            self.num_whole += 1
            self.problems += [(name, wrong) for wrong, num_bytes in wanted.items() if found.get(wrong) != num_bytes]

    def read(self, name: str) -> bytes | None:
        try:
            return self.store.get(f"{self.store.prefix}/{name}")
        except self.store.s3.exceptions.NoSuchKey:
            return None


# What a user can do wrong.


@pytest.mark.usefixtures("s3_uri")
def test_a_bucket_that_is_not_there_is_one_sentence(tree, build, one_sentence):
    with pytest.raises(StorageError) as caught:
        build(tree({"a.txt": b"1"}), "s3://no-such-bucket-here/x")
    text = one_sentence(caught.value)
    assert "s3://no-such-bucket-here/x" in text and "create the bucket or mend its name" in text


def test_a_bucket_with_other_objects_is_refused_and_left_alone(tree, build, store, s3_uri, one_sentence):
    store.put("mine.txt", b"mine")
    with pytest.raises(UsageError) as caught:
        build(tree({"a.txt": b"1"}), s3_uri)
    assert "mine.txt" in one_sentence(caught.value)
    assert store.objects() == {"mine.txt": b"mine"}


def test_a_bucket_in_a_bucket_is_refused_by_its_name_alone(s3_uri):
    """``s3://b/raw2`` is not inside ``s3://b/raw``."""
    from shardtools.build.destination import refuse_inside
    from shardtools.sources import Input
    from shardtools.storage import open_storage

    refuse_inside([Input(f"{s3_uri}/raw")], open_storage(f"{s3_uri}/raw2"))
    refuse_inside([Input("/")], open_storage(f"{s3_uri}/raw2"))
    refuse_inside([Input(f"{s3_uri}/raw")], open_storage("/tmp/out"))
    for root in (s3_uri, f"{s3_uri}/raw"):
        with pytest.raises(UsageError, match="outside the source"):
            refuse_inside([Input(root)], open_storage(f"{s3_uri}/raw"))
    one_object = Input(s3_uri, (b"docs.jsonl",))
    refuse_inside([one_object], open_storage(f"{s3_uri}/docs"))
    with pytest.raises(UsageError, match="outside the source"):
        refuse_inside([one_object], open_storage(f"{s3_uri}/docs.jsonl"))


def test_uploads_that_may_not_be_looked_for_are_a_warning(tree, build, store, s3_uri, monkeypatch):
    def deny(*_: object) -> None:
        raise StorageError("could not abort unfinished uploads: the server answered AccessDenied")

    monkeypatch.setattr(S3, "discard_unfinished", deny)
    result = build(tree({"a.txt": b"1"}), s3_uri)
    assert any("AccessDenied" in warning for warning in result.warnings)
    assert "shardtools.manifest" in store.objects() and not any("/build/" in name for name in store.objects())
