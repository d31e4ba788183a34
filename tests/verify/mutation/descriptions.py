"""Manifests and indexes edited by hand, and files exchanged, lost, added, replaced around them."""

import copy
import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from mutation import INDEX, MANIFEST, OFFSETS, PLAN, Files, Mutant, flipped_within, whole_file_damages
from mutation.sealing import Change, sealed, with_index, with_manifest


def on_shard(change: Change) -> Change:
    """A change of the second shard's entry, or of the only one."""
    return lambda content: change(content["shards"][min(1, len(content["shards"]) - 1)])


def form_of(entry: Any) -> Any:
    """The form of a shard that is stored."""
    return entry["zip_data"] or entry["raw_data"]


def other_hashes(content: Any) -> None:
    recipe = content["recipe"]["format"]
    recipe["hashes"] = [] if recipe["hashes"] else ["sha1"]


MANIFEST_EDITS: dict[str, Change] = {
    "another format": lambda content: content.update(format="shardtools.manifest/99"),
    "no format": lambda content: content.pop("format"),
    "no recipe": lambda content: content.pop("recipe"),
    "no plan": lambda content: content.pop("plan"),
    "no shards": lambda content: content.pop("shards"),
    "no files": lambda content: content.pop("files"),
    "no ledger": lambda content: content.pop("ledger"),
    "an empty list of shards": lambda content: content.update(shards=[]),
    "an empty list of files": lambda content: content.update(files=[]),
    "shards that are none": lambda content: content.update(shards="all"),
    "an unknown shard format": lambda content: content["recipe"]["format"].update(name="tfrecord"),
    "a format without a name": lambda content: content["recipe"]["format"].pop("name"),
    "an unknown option of the format": lambda content: content["recipe"]["format"].update(bogus=1),
    "a recipe that is none": lambda content: content.update(recipe=[]),
    "no field": lambda content: content["recipe"].update(fields=[]),
    "a field less": lambda content: content["recipe"]["fields"].pop(),
    "a field more": lambda content: content["recipe"]["fields"].append({"name": "zz", "encoding": "bytes", "optional": False}),
    "shards above the shard size": lambda content: content["recipe"].update(shard_bytes=700),
    "shards above the number of samples": lambda content: content["recipe"].update(shard_samples=1),
    "another read": lambda content: content["ledger"].update(read=content["ledger"]["read"] + 1),
    "another written": lambda content: content["ledger"].update(written=content["ledger"]["written"] - 1),
    "another rejected": lambda content: content["ledger"].update(rejected=content["ledger"]["rejected"] + 1),
    "another filtered": lambda content: content["ledger"].update(filtered=1),
    "a reason without a number": lambda content: content["ledger"].update(rejects={"other": "one"}),
    "reasons that are none": lambda content: content["ledger"].update(rejects=[]),
    "a negative filtered": lambda content: content["ledger"].update(filtered=-1, read=content["ledger"]["read"] - 1),
    "a number of a fraction": lambda content: content["ledger"].update(filtered=0.5, read=content["ledger"]["read"] + 0.5),
    "a reason more": lambda content: content["ledger"]["rejects"].update(other=1),
    "a written that closes": lambda content: content["ledger"].update(
        written=content["ledger"]["written"] + 1, read=content["ledger"]["read"] + 1
    ),
    "the last shard left out": lambda content: content["shards"].pop(),
    "the first shard left out": lambda content: content["shards"].pop(0),
    "a shard twice": lambda content: content["shards"].append(copy.deepcopy(content["shards"][-1])),
    "shards in the other order": lambda content: content["shards"].reverse(),
    "a file twice": lambda content: content["files"].append(copy.deepcopy(content["files"][0])),
    "a file that is not there": lambda content: content["files"].append({**content["files"][0], "name": "other.bin"}),
    "a name outside": on_shard(lambda entry: entry.update(name="../" + entry["name"])),
    "a name from the root": on_shard(lambda entry: entry.update(name="/" + entry["name"])),
    "a name with a dot folder": on_shard(lambda entry: entry.update(name="./" + entry["name"])),
    "a name of nothing": on_shard(lambda entry: entry.update(name="")),
    "a name of no text": on_shard(lambda entry: entry.update(name=7)),
    "a size of a byte more": on_shard(lambda entry: entry.update(bytes=entry["bytes"] + 1)),
    "a size of zero": on_shard(lambda entry: entry.update(bytes=0)),
    "a negative size": on_shard(lambda entry: entry.update(bytes=-1)),
    "a size as text": on_shard(lambda entry: entry.update(bytes=str(entry["bytes"]))),
    "a size of a fraction": on_shard(lambda entry: entry.update(bytes=float(entry["bytes"]))),
    "a size of true": on_shard(lambda entry: entry.update(bytes=True)),
    "another digest": on_shard(lambda entry: entry.update(sha256="0" * 64)),
    "a digest in capitals": on_shard(lambda entry: entry.update(sha256=entry["sha256"].upper())),
    "an empty digest": on_shard(lambda entry: entry.update(sha256="")),
    "a sample more": on_shard(lambda entry: entry.update(samples=entry["samples"] + 1)),
    "no samples": on_shard(lambda entry: entry.update(samples=0)),
    "other field sets": on_shard(lambda entry: entry.update(field_sets={"other": entry["samples"]})),
    "field sets of another count": on_shard(
        lambda entry: entry.update(field_sets={name: n + 1 for name, n in entry["field_sets"].items()})
    ),
    "no field sets": on_shard(lambda entry: entry.update(field_sets={})),
    "another digest of the offsets": lambda content: content["files"][0].update(sha256="1" * 64),
    "another size of the offsets": lambda content: content["files"][0].update(bytes=8),
}
MDS_MANIFEST_EDITS: dict[str, Change] = {
    "other hashes than the index": other_hashes,
    "another compression than the index": lambda content: content["recipe"]["format"].update(compression="zstd:7"),
    "another size limit than the index": lambda content: content["recipe"].update(shard_bytes=1 << 20),
    "another key column": lambda content: content["recipe"]["format"].update(key_column="x"),
    "another encoding": lambda content: content["recipe"]["fields"][0].update(encoding="str_int"),
}
INDEX_EDITS: dict[str, Change] = {
    "another version": lambda content: content.update(version=3),
    "a version as text": lambda content: content.update(version="2"),
    "no version": lambda content: content.pop("version"),
    "no shards": lambda content: content.pop("shards"),
    "shards that are none": lambda content: content.update(shards={}),
    "a shard that is none": lambda content: content["shards"].append(None),
    "the last shard left out": lambda content: content["shards"].pop(),
    "the first shard left out": lambda content: content["shards"].pop(0),
    "a shard twice": lambda content: content["shards"].append(content["shards"][0]),
    "a sample more": on_shard(lambda entry: entry.update(samples=entry["samples"] + 1)),
    "a sample less": on_shard(lambda entry: entry.update(samples=entry["samples"] - 1)),
    "a negative count": on_shard(lambda entry: entry.update(samples=-1)),
    "another entry version": on_shard(lambda entry: entry.update(version=1)),
    "another entry format": on_shard(lambda entry: entry.update(format="jsonl")),
    "another compression": on_shard(lambda entry: entry.update(compression="zstd:5" if entry["compression"] else "zstd")),
    "other hashes": on_shard(lambda entry: entry.update(hashes=[*entry["hashes"], "md5"])),
    "another size limit": on_shard(lambda entry: entry.update(size_limit=12345)),
    "one key more": on_shard(lambda entry: entry.update(note="x")),
    "one key less": on_shard(lambda entry: entry.pop("size_limit")),
    "a column less": on_shard(lambda entry: entry["column_names"].pop()),
    "a column renamed": on_shard(lambda entry: entry["column_names"].append(entry["column_names"].pop() + "z")),
    "another encoding": on_shard(lambda entry: entry["column_encodings"].append(entry["column_encodings"].pop() and "bytes2")),
    "another column size": on_shard(lambda entry: entry["column_sizes"].append((entry["column_sizes"].pop() or 2) + 1)),
    "a basename outside": on_shard(lambda entry: entry["raw_data"].update(basename="../secret.mds")),
    "a basename from the root": on_shard(lambda entry: entry["raw_data"].update(basename="/etc/passwd")),
    "a basename of no text": on_shard(lambda entry: entry["raw_data"].update(basename=None)),
    "another basename": on_shard(lambda entry: form_of(entry).update(basename="shard.77777.mds")),
    "another size": on_shard(lambda entry: form_of(entry).update(bytes=form_of(entry)["bytes"] + 1)),
    "a negative size": on_shard(lambda entry: entry["raw_data"].update(bytes=-1)),
    "a hash of an unknown kind": on_shard(lambda entry: entry["raw_data"]["hashes"].update(crc7="00")),
    "a wrong hash": on_shard(lambda entry: entry["raw_data"]["hashes"].update(sha1="0" * 40)),
    "a key more in raw_data": on_shard(lambda entry: entry["raw_data"].update(note="x")),
    "no raw_data": on_shard(lambda entry: entry.update(raw_data=None)),
    "a zip_data without compression": on_shard(lambda entry: entry.update(zip_data=None if entry["zip_data"] else dict(entry["raw_data"]))),
}


def texts_of_index(files: Files) -> Iterator[tuple[str, bytes]]:
    """Indexes that are other texts, or no JSON."""
    text = files[INDEX]
    yield "cut in the middle", text[: len(text) // 2]
    yield "cut by the last byte", text[:-1]
    yield "twice", text + text
    yield "nothing", b""
    yield "an empty object", b"{}"
    yield "a list", b"[]"
    yield "a number", b"7"
    yield "nested too deep", b"[" * 50_000
    yield "in UTF-16", text.decode().encode("utf-16")
    yield "with a byte order mark", b"\xef\xbb\xbf" + text
    yield "with a NUL", text + b"\0"


def index_edits(files: Files) -> Iterator[Mutant]:
    """The index edited; what the manifest says of the index is made right where there is a manifest."""
    for name, data in texts_of_index(files):
        yield Mutant(f"index: {name}", resealed_index({**files, INDEX: data}))
    for name, change in INDEX_EDITS.items():
        yield Mutant(f"index: {name}", resealed_index(with_index(files, change)))
    if len(json.loads(files[INDEX])["shards"]) > 1:
        counts = with_index(files, move_a_sample)
        yield Mutant("index: a sample counted in the other shard", resealed_index(counts))


def move_a_sample(content: Any) -> None:
    content["shards"][0]["samples"] += 1
    content["shards"][1]["samples"] -= 1


def resealed_index(files: Files) -> Files:
    """The digest of the index made right, but nothing that the index says."""
    if MANIFEST not in files:
        return files
    bare = {name: data for name, data in files.items() if name != INDEX}

    def change(content: Any) -> None:
        for entry in content["files"]:
            if entry["name"] == INDEX:
                entry["bytes"], entry["sha256"] = len(files[INDEX]), hashlib.sha256(files[INDEX]).hexdigest()

    return {**with_manifest(bare, change), INDEX: files[INDEX]}


def manifest_edits(files: Files) -> Iterator[Mutant]:
    """The manifest edited, without and with a new seal."""
    text = files[MANIFEST]
    for name, change in {**MANIFEST_EDITS, **(MDS_MANIFEST_EDITS if INDEX in files else {})}.items():
        edited = with_manifest(files, change)
        yield Mutant(f"manifest: {name}", edited)
        yield Mutant(f"manifest: {name}, under the old seal", {**files, MANIFEST: unsealed(edited[MANIFEST], text)})
    for name, data in {
        "cut": text[: len(text) // 2],
        "without the last byte": text[:-1],
        "without its seal": text[: text.rindex(b',\n "sha256"')] + b"\n}\n",
        "twice": text + text,
        "with another end of line": text.replace(b"\n", b"\r\n"),
        "in one line": json.dumps(json.loads(text)).encode(),
        "with the seal of nothing": text[:-68] + b"0" * 64 + text[-4:],
    }.items():
        yield Mutant(f"manifest: {name}", {**files, MANIFEST: data})


def unsealed(edited: bytes, sound: bytes) -> bytes:
    """The edited text with the seal of the sound one."""
    mark = b',\n "sha256"'
    return edited[: edited.rindex(mark)] + sound[sound.rindex(mark) :]


def offsets_edits(files: Files) -> Iterator[Mutant]:
    """Wrong offsets under a right digest."""
    data = files[OFFSETS]
    for name, edited in {
        "one entry more": data + data[-8:],
        "one entry less": data[:-8],
        "a byte less": data[:-1],
        "none": b"",
        "all zero": bytes(len(data)),
        "the last entry plus one": data[:-8] + (int.from_bytes(data[-8:], "little") + 1).to_bytes(8, "little"),
        "in the other byte order": b"".join(data[i : i + 8][::-1] for i in range(0, len(data), 8)),
    }.items():
        yield Mutant(f"offsets: {name}", sealed({**files, OFFSETS: edited}))


def file_damages(files: Files, numbers: random.Random, num_flips: int) -> Iterator[Mutant]:
    """Every published file spoilt as a whole, and bits flipped in it; nothing is sealed."""
    for name, data in files.items():
        if name == PLAN:
            continue
        yield Mutant(f"{name} missing", {other: files[other] for other in files if other != name})
        for damage in whole_file_damages(data):
            if damage.data != data:
                yield Mutant(f"{name}: {damage.name}", {**files, name: damage.data})
        for _ in range(num_flips if data else 0):
            where, damaged = flipped_within(data, 0, len(data), numbers)
            yield Mutant(f"{name}: {where}", {**files, name: damaged})


def exchanges(files: Files, other: Files, shards: list[str], extra: Callable[[str], str]) -> Iterator[Mutant]:
    """Shards swapped, replaced, doubled, lost, and those of another dataset under the right name."""
    for one, two in itertools.pairwise(shards):
        yield Mutant(f"{one} and {two} swapped", {**files, one: files[two], two: files[one]})
        yield Mutant(f"{one} in place of {two}", {**files, two: files[one]})
        yield Mutant(f"{two} after {one} in one file", {**files, one: files[one] + files[two]})
    for name in shards:
        yield Mutant(f"{name} of another dataset", {**files, name: other[name]})
    yield Mutant("a stale shard of another dataset", {**files, extra(shards[-1]): other[shards[-1]]})
    yield Mutant("a copy of a shard", {**files, extra(shards[0]): files[shards[0]]})
    yield Mutant("a copy of a shard in a folder", {**files, f"copy/{shards[0]}": files[shards[0]]})
    yield Mutant("an empty shard more", {**files, extra(shards[0]): b""})
    yield Mutant("all shards missing", {name: files[name] for name in files if name not in shards})
    for name in (MANIFEST, INDEX, OFFSETS):
        if name in files and files[name] != other[name]:
            yield Mutant(f"{name} of another dataset", {**files, name: other[name]})
    described = {name: other[name] for name in (MANIFEST, INDEX, OFFSETS) if name in files}
    yield Mutant("all that describes another dataset", {**files, **described})
