"""Sound datasets damaged in every way the damage tables know, and at random; stops a verify that passes over any of it.

Every mutant must be found, by a finding of levels 1 to 3, in a short time, and the folder must stay as it was. What cannot be
found where there is no manifest to compare with is listed as such, and nothing else is.
"""

import gzip
import io
import random
import tarfile
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from mutation import Mutant, Needs, flipped_within, tars, whole_file_damages
from mutation.bases import Base, foreign_mutants, own_mutants, read_folder
from mutation.descriptions import exchanges, file_damages, index_edits

from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources._grouping import parse_field_rules
from shardtools.verify import Verdict, VerifyOptions, verify

SEED = 20260214
MOST_SECONDS = 10.0


class Bench:
    """A folder that becomes one mutant after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = read_folder(folder) if folder.exists() else {}

    def verified(self, files: Mapping[str, bytes]) -> Verdict | None:
        """The verdict on these files; None for wrong use, said in one sentence."""
        self._become(files)
        began = time.process_time()
        try:
            verdict = verify(str(self.folder), VerifyOptions(workers=1))
        except UsageError as error:
            assert "\n" not in str(error)
            verdict = None
        except Exception as error:
            raise AssertionError(f"verify raised {type(error).__name__}: {error}") from error
        assert time.process_time() - began < MOST_SECONDS
        assert read_folder(self.folder) == dict(sorted(files.items())), "verify changed the folder"
        return verdict

    def _become(self, files: Mapping[str, bytes]) -> None:
        for name in self.files.keys() - files.keys():
            (self.folder / name).unlink()
        for name, data in files.items():
            if self.files.get(name) != data:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(data)
        self.files = dict(files)


def is_found(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.exit_code == 1 and any(1 <= finding.level <= 3 for finding in verdict.findings)


def missed(bench: Bench, sound: Mapping[str, bytes], mutants: Iterable[Mutant]) -> list[str]:
    """The names of the mutants verify does not find. None equals the sound dataset."""
    names = []
    for mutant in mutants:
        assert mutant.files != sound, f"{mutant.name} changes nothing"
        try:
            if not is_found(bench.verified(mutant.files)):
                names.append(mutant.name)
        except AssertionError as error:
            names.append(f"{mutant.name}: {error}")
    return names


@pytest.fixture
def make(build, rows, tmp_path):
    """Build a dataset of one of the kinds in BASES, and another like it with other samples."""

    def call(kind: str) -> Base:
        made = []
        for word in ("one", "two"):
            (tmp_path / f"src-{word}").mkdir()
            BASES[kind](build, rows, tmp_path / f"src-{word}", tmp_path / word, "k" if word == "one" else "m")
            made.append(read_folder(tmp_path / word))
        return Base(*made)

    return call


def wds_rows(build, rows, source, out, letter):
    """json and txt in five shards, and two rejected rows."""
    keys = [f"{letter}{i:03d}".encode() for i in range(40)] + [b"bad1", b"bad2"]
    columns = {"json": [b'{"i":%d}' % i for i in range(42)], "txt": [b"t" * (i + 1) for i in range(42)]}
    build(source, out, Wds(), source=rows(keys, columns, {"json": "json", "txt": "str"}), shard_bytes=20480, max_bad="2")


def wds_files(build, _, source, out, letter):
    """Files of nested folders, with escaped keys, an optional field, empty files, and one file above the shard size."""
    for i in range(24):
        folder = source / ("a b", "c", "c/ü")[i % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{letter}{i:02d}.jpg").write_bytes(b"\xff\xd8\xff" + bytes([i]) * (i * 41 if i != 7 else 23_000))
        (folder / f"{letter}{i:02d}.json").write_bytes(b'{"i": %d}' % i)
        if i % 4:
            (folder / f"{letter}{i:02d}.seg.png").write_bytes(b"" if i % 3 else b"\x89PNG\r\n\x1a\n" + bytes(i))
    build(source, out, Wds(), shard_bytes=20480, group="first-dot", fields=parse_field_rules("jpg,json,seg.png?"))


def mds_rows(build, rows, source, out, letter, shard_format=Mds()):
    """Every kind of encoding in shards of at most 1.5 KiB."""
    count = 24
    columns = {
        "array": [list(range(i + 1)) for i in range(count)],
        "blob": [b"b" * (i % 5) for i in range(count)],
        "image": [b"\xff\xd8\xff" + b"i" * i for i in range(count)],
        "meta": [{"i": i} for i in range(count)],
        "number": list(range(count)),
        "score": [i / 7 for i in range(count)],
        "text": ["tü" * i for i in range(count)],
    }
    encodings = {"array": "ndarray:int32", "blob": "bytes", "image": "jpeg", "meta": "json", "number": "int", "score": "float64"}
    keys = [f"{letter}{i:03d}".encode() for i in range(count)]
    build(source, out, shard_format, source=rows(keys, columns, encodings | {"text": "str"}), shard_bytes=1536)


def mds_hashes(build, rows, source, out, letter):
    mds_rows(build, rows, source, out, letter, Mds(hashes=("sha1", "xxh64")))


def mds_zstd(build, rows, source, out, letter):
    mds_rows(build, rows, source, out, letter, Mds(compression="zstd", hashes=("sha1",)))


def mds_zstd_bare(build, rows, source, out, letter):
    mds_rows(build, rows, source, out, letter, Mds(compression="zstd"))


def mds_keyless(build, rows, source, out, letter):
    """Columns of fixed size alone, and no key."""
    columns = {"x": [i + ord(letter) for i in range(30)], "y": [float(i) for i in range(30)]}
    source_rows = rows([b"r%d" % i for i in range(30)], columns, {"x": "int", "y": "float32"})
    build(source, out, Mds(key_column=None), source=source_rows, shard_samples=10)


# Without a manifest a shard need only be one that could be: these are, and level 3 says nothing about them.
NOT_PROVABLE = {
    "wds": (
        "a member lost",
        "the first sample lost",
        "a middle sample lost",
        "the last sample lost",
        "all samples but one",
        "the last shard missing",
        # Numbers have a gap then, which is worth a note and proves nothing.
        "a middle shard missing",
        "a new sample at the end",
        "a shard of another dataset",
        "a shard more, of another dataset",
        "the first two samples in the other order",
        "two members of a sample in the wrong order",
        "two shards swapped",
        # A member may have any name, owner and time.
        "first member named in bytes that are no UTF-8",
        "first member named with 95 bytes of key",
        "first member named with a blank",
        "first member named with a dot folder",
        "first member named with a newline",
        "first member named with a reserved field",
        "first member named with an escape sequence",
        "first member named with an underscore first",
        "first member named with an upper-case field",
        "first member named with another legal field",
        "header with a group",
        "header with a prefix",
        "header with a time",
        "header with an owner",
        "header with an owner's name",
        "header with another mode",
        "a GNU long name",
        "an extension header with another name",
        # A byte of padding that is taken for one of the value is zero like any other.
        "header with a size of a byte more",
        # Other spellings of the same archive.
        "a folder",
        "a global header",
        "an extension header",
        "header with GNU magic",
        "header with an old magic",
        "header with the size in base-256",
        "header with type NUL",
        "first member, end of the checksum",
        "middle member, end of the checksum",
        "last member, end of the checksum",
        "a record of zeros after the end",
        "a zero byte after the end",
        "cut after both end blocks",
        "cut by the last byte of the last record",
        # An archive of nothing is what tar makes of nothing.
        "an empty archive",
        "two zero blocks alone",
        "zeros alone, of the right length",
    ),
    "mds": (
        # The index has lengths, and hashes only if its writer was asked for them.
        "a shard of another dataset",
        "column number (int) of another number",
        "the first two rows in the other order",
        # Other writers have keys of any kind.
        "a key b'' of 0 bytes",
        "a key b'../x' of 4 bytes",
        "a key b'/x' of 2 bytes",
        "a key b'_x' of 2 bytes",
        "a key b'a b' of 3 bytes",
        "a key b'a.b' of 3 bytes",
        "a key b'a//b' of 4 bytes",
        "a key b'a\\nb' of 3 bytes",
        "a key b'a\\x1b[2Jb' of 6 bytes",
        "a key b'xxxxxxxxxxxx' of 81 bytes",
        # Other spellings of the same description.
        "config with a blank at the end",
        "config with keys in another order",
        "config with other blanks",
    ),
}
BASES = {
    "wds": wds_rows,
    "wds files": wds_files,
    "mds": mds_rows,
    "mds hashes": mds_hashes,
    "mds zstd": mds_zstd,
    "mds zstd bare": mds_zstd_bare,
    "mds keyless": mds_keyless,
}
SLOW = ("wds files", "mds hashes", "mds zstd bare", "mds keyless")
ALL_BASES = [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in BASES]


@pytest.mark.parametrize("kind", ALL_BASES)
def test_every_damage_is_found(make, tmp_path, kind):
    base = make(kind)
    bench = Bench(tmp_path / "one")
    assert bench.verified(base.files).findings == ()
    assert len(base.shards) >= 3
    mutants = list(own_mutants(base, random.Random(SEED)))
    assert len({frozenset(mutant.files.items()) for mutant in mutants}) >= 400, "of each dataset"
    names = missed(bench, base.files, mutants)
    assert not names, f"seed {SEED}: not found are {len(names)} of {len(mutants)}: " + "; ".join(names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASES)
def test_any_flipped_bit_of_any_published_file_is_found(make, tmp_path, kind):
    base = make(kind)
    bench = Bench(tmp_path / "one")
    mutants = file_damages(base.files, random.Random(SEED + 1), 150)
    names = missed(bench, base.files, mutants)
    assert not names, f"seed {SEED + 1}: not found are {'; '.join(names)}"


def mistold(bench: Bench, sound: Mapping[str, bytes], mutants: Iterable[tuple[Mutant, bool]]) -> list[str]:
    """The mutants that are found though they cannot be told from a sound dataset, or are not though they can."""
    names = []
    for mutant, is_provable in mutants:
        assert mutant.files != sound, f"{mutant.name} changes nothing"
        try:
            verdict = bench.verified(mutant.files)
        except AssertionError as error:
            names.append(f"{mutant.name}: {error}")
            continue
        if is_found(verdict) != is_provable:
            names.append(f"{mutant.name}: {verdict and [str(finding) for finding in verdict.findings][:2]}")
    return names


@pytest.mark.parametrize("kind", ALL_BASES)
def test_without_a_manifest_all_is_found_but_what_cannot_be(make, tmp_path, kind):
    base = make(kind).foreign
    bench = Bench(tmp_path / "one")
    assert bench.verified(base.files).findings == ()
    mutants = list(foreign_mutants(base, random.Random(SEED)))
    names = mistold(bench, base.files, mutants)
    assert not names, f"seed {SEED}: not told right are {len(names)} of {len(mutants)}: " + "; ".join(names)
    if kind in NOT_PROVABLE:
        unproved = {mutant.name.partition(": ")[2] or mutant.name for mutant, is_provable in mutants if not is_provable}
        assert unproved == set(NOT_PROVABLE[kind])


def test_a_gap_in_the_numbers_of_shards_is_found_where_notes_are_findings(tmp_path):
    for n in (0, 1, 3):
        (tmp_path / f"train-{n:06d}.tar").write_bytes(foreign_tar(*DIALECTS["GNU"], "abcd"[n]))
    assert verify(str(tmp_path), VerifyOptions(workers=1)).exit_code == 0
    assert verify(str(tmp_path), VerifyOptions(workers=1, strict=True)).exit_code == 1


DIALECTS = {
    "ustar with owners and times": ("w", tarfile.USTAR_FORMAT, 1.0),
    "PAX headers for times": ("w", tarfile.PAX_FORMAT, 1.5),
    "GNU": ("w", tarfile.GNU_FORMAT, 1.0),
}


def foreign_tar(mode: str, tar_format: int, mtime: float, letter: str) -> bytes:
    """A tar by Python's tarfile; its long names need extension headers in all dialects but ustar."""
    buffer = io.BytesIO()
    folder = "f" * (90 if tar_format == tarfile.USTAR_FORMAT else 120)
    with tarfile.open(fileobj=buffer, mode=mode, format=tar_format) as archive:
        for i in range(6):
            for field, value in (("bin", bytes([i]) * (i * 300 + 1)), ("txt", b"text %d" % i)):
                info = tarfile.TarInfo(f"{folder}/{letter}{i}.{field}")
                info.size, info.mtime, info.uid, info.uname = len(value), mtime, 1000, "someone"
                archive.addfile(info, io.BytesIO(value))
    return buffer.getvalue()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_tars_of_other_writers(tmp_path, dialect):
    sound = {f"part-{letter}.tar": foreign_tar(*DIALECTS[dialect], letter) for letter in "abc"}
    bench = Bench(tmp_path / "one")
    bench.folder.mkdir()
    assert bench.verified(sound).findings == ()
    data = sound["part-b.tar"]
    found = [*tars.flips(data, random.Random(SEED)), *tars.cuts(data), *tars.frames(data), *whole_file_damages(data)]
    mutants = [Mutant(damage.name, {**sound, "part-b.tar": damage.data}) for damage in found if damage.needs is Needs.SHARD]
    assert len(mutants) > 90
    names = missed(bench, sound, mutants)
    assert not names, f"seed {SEED}: not found are {'; '.join(names)}"


def test_gzip_tars_of_other_writers(tmp_path):
    sound = {f"part-{letter}.tar.gz": gzip.compress(foreign_tar(*DIALECTS["GNU"], letter), mtime=0) for letter in "abc"}
    bench = Bench(tmp_path / "one")
    bench.folder.mkdir()
    assert bench.verified(sound).findings == ()
    data, numbers = sound["part-b.tar.gz"], random.Random(SEED)
    # The ten bytes of gzip's own header tell of times and systems, and are not covered by its checksum.
    streams = dict(flipped_within(data, 10, len(data), numbers) for _ in range(60))
    streams |= {f"cut at {to}": data[:to] for to in (0, 1, 9, 10, len(data) // 2, len(data) - 9, len(data) - 4, len(data) - 1)}
    streams |= {"garbage after it": data + b"garbage", "stream twice": data + data, "no gzip": gzip.decompress(data)}
    tar = gzip.decompress(data)
    inner = [damage for damage in (*tars.flips(tar, numbers), *tars.cuts(tar)) if damage.needs is Needs.SHARD]
    streams |= {f"inside, {damage.name}": gzip.compress(damage.data) for damage in inner}
    mutants = [Mutant(name, {**sound, "part-b.tar.gz": damaged}) for name, damaged in streams.items()]
    names = missed(bench, sound, mutants)
    assert not names, f"seed {SEED}: not found are {'; '.join(names)}"


@pytest.mark.train
@pytest.mark.parametrize("compression", [pytest.param(None, marks=pytest.mark.slow), "zstd"])
def test_shards_of_the_reference_writer_with_hashes(streaming, tmp_path, compression):
    """With hashes in the index nothing of a shard's bytes can change unseen."""
    for word in ("one", "two"):
        columns = {"key": "str", "a": "ndarray:int32", "b": "bytes", "j": "json", "n": "int"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"compression": compression, "hashes": ["sha1"], "size_limit": 2000}
            with streaming.MDSWriter(out=str(tmp_path / word), columns=columns, **options) as sink:
                for i in range(30):
                    array = np.arange(i + 1, dtype=np.int32)
                    sink.write({"key": f"{word}{i}", "a": array, "b": b"x" * i, "j": {"i": i}, "n": i})
    base = Base(read_folder(tmp_path / "one"), read_folder(tmp_path / "two"))
    bench = Bench(tmp_path / "one")
    assert bench.verified(base.files).findings == ()
    shard = base.shards[1]
    mutants = [
        Mutant(f"{name}: {damage.name}", {**base.files, name: damage.data}) for name, damage in base.shard_damages(random.Random(SEED))
    ]
    mutants += exchanges(base.files, base.other, base.shards[:3], base.extra)
    mutants += index_edits(base.files)
    for _ in range(60):
        where, damaged = flipped_within(base.files[shard], 0, len(base.files[shard]), random.Random(len(mutants)))
        mutants.append(Mutant(f"{shard}: {where}", {**base.files, shard: damaged}))
        where, damaged = flipped_within(base.files["index.json"], 0, len(base.files["index.json"]), random.Random(len(mutants)))
        mutants.append(Mutant(f"index.json: {where}", {**base.files, "index.json": damaged}))
    names = missed(bench, base.files, mutants)
    assert not names, f"seed {SEED}: not found are {len(names)} of {len(mutants)}: " + "; ".join(names)
