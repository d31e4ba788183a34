"""Runs into a bucket that are killed at random moments, and what a reader finds between them. Run as a script by the tests.

``killed_s3_runs.py FORMAT SOURCE OTHER URI SEED NUM_SCHEDULES``: prints ``{"kills": N, "problems": [...]}``. A schedule is up to three
runs, each of a random kind and killed before a random request that changes the store, then a last one that is left alone. Before each
kill and after it a dataset is whole or not there; in the end every object is that of a run that nobody killed. Reads by a plain client.
"""

import hashlib
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import boto3

from shardtools import partitions
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.engines.serial import Serial
from shardtools.plan import ShardLimit
from shardtools.plugins import load
from shardtools.sources.files import Files
from shardtools.units import Budget

partitions.MIN_PARTITION_BYTES = 48 << 10
KINDS = {"plain": ("0", False), "tolerant": ("50%", False), "overwrite": ("0", True)}
CHANGES = ("PUT", "POST", "DELETE")
PUBLISHED = ("shardtools.manifest", "index.json")


def pack(source: str, uri: str, format_: str, kind: str) -> None:
    budget, overwrite = KINDS[kind]
    order = Order(Files(), load("formats", format_)(), ShardLimit(20480))
    run.build([source], uri, order, run.RunOptions(Serial(), Budget.parse(budget), overwrite))


def in_child(action: Callable[[], None], step: int | None) -> tuple[int, str]:
    """Exit code and message of the action in a process of its own, killed before its ``step``-th change of the store."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            if step is not None:
                kill_before(step)
            action()
        except BaseException as error:
            code = 1
            is_ours = hasattr(error, "exit_code")
            text = f"{type(error).__name__}: {error}" if is_ours else traceback.format_exc()
            os.write(write_end, text.encode()[:60_000])
        os._exit(code)
    os.close(write_end)
    with open(read_end) as message:
        text = message.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def kill_before(step: int) -> None:
    from shardtools.storage.s3._client import client

    left = [step]

    def on_request(request: Any, **_: Any) -> None:
        left[0] -= request.method in CHANGES
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    client().meta.events.register("before-send.s3", on_request)


class Bucket:
    """What lies below a URI, for a client that owes nothing to the code under test."""

    def __init__(self, uri: str) -> None:
        self.name, _, self.prefix = uri.removeprefix("s3://").partition("/")
        self.s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.objects().items()}

    def objects(self) -> dict[str, bytes]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=self.prefix + "/")
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return {key[len(self.prefix) + 1 :]: self.s3.get_object(Bucket=self.name, Key=key)["Body"].read() for key in keys}

    def uploads(self) -> list[str]:
        found = self.s3.list_multipart_uploads(Bucket=self.name, Prefix=self.prefix + "/").get("Uploads", ())
        return [upload["Key"] for upload in found if upload["Key"].startswith(self.prefix + "/")]

    def clear(self) -> None:
        for name in self.objects():
            self.s3.delete_object(Bucket=self.name, Key=f"{self.prefix}/{name}")


def half_published(objects: dict[str, bytes]) -> list[str]:
    """What is wrong with the dataset a reader would see; nothing where there is none."""
    found = {name: hashlib.sha256(data).hexdigest() for name, data in objects.items()}
    wrong = []
    if "index.json" in objects:
        names = [entry["raw_data"]["basename"] for entry in json.loads(objects["index.json"])["shards"]]
        wrong += [f"index.json names {name}" for name in names if name not in found]
    if "shardtools.manifest" in objects:
        content = json.loads(objects["shardtools.manifest"])
        entries = [*content["shards"], *content["files"]]
        wrong += [f"the manifest names {entry['name']}" for entry in entries if found.get(entry["name"]) != entry["sha256"]]
    return wrong


class Schedules:
    def __init__(self, format_: str, source: str, other: str, uri: str) -> None:
        self.format, self.uri, self.sources = format_, uri, {"source": source, "other": other}
        self.clean = {}
        for name in self.sources:
            place = f"{uri}/clean-{name}"
            self.check(in_child(lambda name=name, place=place: pack(self.sources[name], place, format_, "tolerant"), None))
            self.clean[name] = Bucket(place).digests()
        self.kills = 0

    def check(self, ended: tuple[int, str]) -> None:
        if ended[0] != 0:
            raise SystemExit(f"a run that was left alone failed: {ended[1]}")

    def run(self, numbers: random.Random, place: str) -> list[Any]:
        """What went wrong in one schedule."""
        bucket, log = Bucket(place), []
        for _ in range(numbers.randint(1, 3)):
            name, kind = numbers.choice(["source", "source", "other"]), numbers.choice(list(KINDS))
            step = numbers.randint(0, 36)
            code, text = in_child(lambda name=name, kind=kind: pack(self.sources[name], place, self.format, kind), step)
            log.append([name, kind, step, code, text[:300]])
            self.kills += code == -signal.SIGKILL
            if code == 1 and not text.startswith("UsageError"):
                return ["failed by itself", log]
            if wrong := half_published(bucket.objects()):
                return ["half a dataset", wrong, log]
        code, text = in_child(lambda: pack(self.sources["source"], place, self.format, numbers.choice(["plain", "tolerant"])), None)
        if code == 1 and text.startswith("UsageError"):
            # The other plan is there, whole or begun.
            if wrong := half_published(bucket.objects()):
                return ["half a dataset was refused", wrong, log]
            code, text = in_child(lambda: pack(self.sources["source"], place, self.format, "overwrite"), None)
        if code != 0:
            return ["the last run failed", text, log]
        after = bucket.digests()
        if log[-1][:2] == ["other", "overwrite"] and log[-1][3] == -signal.SIGKILL and set(after) - set(self.clean["source"]):
            # The dataset was complete all along, and what the other plan began beside it may be of a run that lives.
            if wrong := [name for name, digest in self.clean["source"].items() if after.get(name) != digest]:
                return ["another run's start did damage", wrong, log]
            self.check(in_child(lambda: pack(self.sources["source"], place, self.format, "overwrite"), None))
            after = bucket.digests()
        if after != self.clean["source"]:
            return ["other objects", sorted(set(after.items()) ^ set(self.clean["source"].items())), log]
        return ["unfinished uploads", bucket.uploads(), log] if bucket.uploads() else []


def main() -> None:
    format_, source, other, uri, seed, num_schedules = sys.argv[1:]
    schedules, problems = Schedules(format_, source, other, uri), []
    for number in range(int(num_schedules)):
        if found := schedules.run(random.Random(f"{seed}/{number}"), f"{uri}/{number}"):
            problems.append([number, *found])
    print(json.dumps({"kills": schedules.kills, "problems": problems}))


if __name__ == "__main__":
    main()
