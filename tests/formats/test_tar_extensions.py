"""Extension headers in tars of other writers; stops an archive called sound of which readers deliver other names or bytes.

Where ``tarfile`` takes another name or size than the plain header says, verify must have read the same or call it damaged.
"""

import os
import subprocess
import sys
import tarfile

import pytest

from shardtools.errors import DamagedShardError
from shardtools.formats import tar_entries
from shardtools.verify import VerifyOptions, verify


def entry(name, data, kind=b"0"):
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def record(keyword, value):
    """A PAX record, whose length counts its own digits."""
    body = b" " + keyword + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


def pax(kind, *records):
    return entry("pax", b"".join(record(*one) for one in records), kind)


A, C = entry("a.txt", b"12"), entry("c.txt", b"34")
Q, R = pax(b"x", (b"path", b"q.txt")), pax(b"x", (b"path", b"r.txt"))
COMMENT = pax(b"g", (b"comment", b"0123456789abcdef0123456789abcdef01234567"))  # as git archive writes it
LONG_Q, LONG_R = entry("././@LongLink", b"q.txt\0", b"L"), entry("././@LongLink", b"r.txt\0", b"L")

DAMAGED = {
    "a global name": [pax(b"g", (b"path", b"b.txt")), A, C],
    "a global size": [pax(b"g", (b"size", b"1")), A, C],
    "a global target": [pax(b"g", (b"linkpath", b"b.txt")), A],
    "a global encoding": [pax(b"g", (b"hdrcharset", b"BINARY")), A],
    "a global sparse map": [pax(b"g", (b"GNU.sparse.map", b"0,1")), A],
    "a global name behind a comment": [A, pax(b"g", (b"comment", b"x"), (b"path", b"b.txt")), C],
    "a global header of garbage": [entry("pax", b"garbage", b"g"), A],
    "a global record without =": [entry("pax", b"8 hello\n", b"g"), A],
    "a global header at the end": [A, pax(b"g", (b"path", b"q.txt"))],
    "a comment at the end": [A, COMMENT],
    "a comment alone": [COMMENT],
    "a name at the end": [A, Q],
    "a comment and a name at the end": [A, COMMENT, Q],
    "two names": [Q, R, A],
    "the same name twice": [Q, Q, A],
    "two long names": [LONG_Q, LONG_R, A],
    "two names of different kinds": [LONG_Q, R, A],
    "a comment between name and member": [Q, COMMENT, A],
    "a NUL in a name": [pax(b"x", (b"path", b"q\0z.txt")), A],
    "an empty name": [pax(b"x", (b"path", b"")), A],
    "a record without a keyword": [entry("pax", b"5 =x\n", b"x"), A],
}
SOUND = {
    "git archive": ([COMMENT, A, C], ["a.txt", "c.txt"]),
    "comments before each": ([COMMENT, A, COMMENT, COMMENT, C], ["a.txt", "c.txt"]),
    "times and owners": ([pax(b"g", (b"mtime", b"1.5"), (b"uid", b"0"), (b"gname", b"root")), A], ["a.txt"]),
    "a comment before a name": ([COMMENT, Q, A, C], ["q.txt", "c.txt"]),
    "two kinds, one name": ([LONG_Q, Q, A], ["q.txt"]),
    "a size before a long name": ([pax(b"x", (b"size", b"2")), LONG_Q, A, C], ["q.txt", "c.txt"]),
}


def written(tmp_path, parts):
    (tmp_path / "x.tar").write_bytes(b"".join(parts) + bytes(1024))
    return tmp_path


@pytest.mark.parametrize("case", DAMAGED)
def test_what_readers_take_in_different_ways_is_damage(tmp_path, case):
    findings = verify(str(written(tmp_path, DAMAGED[case])), VerifyOptions(workers=1)).findings
    assert [finding.kind for finding in findings] == ["damaged-shard"]
    with pytest.raises(DamagedShardError):
        list(tar_entries(memoryview((tmp_path / "x.tar").read_bytes())))


@pytest.mark.parametrize("case", SOUND)
def test_what_readers_take_alike_is_sound(tmp_path, case):
    parts, names = SOUND[case]
    assert verify(str(written(tmp_path, parts)), VerifyOptions(workers=1)).findings == ()
    with tarfile.open(tmp_path / "x.tar") as archive:
        expected = [(info.name, info.size) for info in archive]
    assert [name for name, _ in expected] == names
    data = memoryview((tmp_path / "x.tar").read_bytes())
    assert [(one.name.decode(), one.num_bytes) for one in tar_entries(data) if one.is_file] == expected


LOOKS = {
    "quick": "from shardtools.formats._wds_columns import columns as look",
    "slow": "from shardtools.formats._wds_audit import samples as look",
}
MEASURED = """
import mmap, sys
from shardtools.formats import Audit
{look}
faults = []
with open(sys.argv[1], "rb") as file:
    shard = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
num_found = len(list(look(shard, Audit(on_fault=faults.append, own=False, config=None))))
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(len(faults), num_found, peak)
"""


@pytest.mark.parametrize("look", LOOKS)
def test_zeros_behind_the_end_do_not_fill_the_memory(tmp_path, look):
    """They may be a hole in the file, of any length."""
    path = written(tmp_path, [A, C]) / "x.tar"
    os.truncate(path, 512 << 20)
    code = MEASURED.format(look=LOOKS[look])
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    num_faults, num_found, peak_kib = map(int, run.stdout.split())
    assert (num_faults, num_found) == (0, 2)
    assert peak_kib < 200 << 10


def test_data_far_behind_the_end_is_found(tmp_path):
    with open(written(tmp_path, [A]) / "x.tar", "r+b") as file:
        file.seek(5 << 20)
        file.write(bytes(1000) + b"x" + bytes(23))
    findings = verify(str(tmp_path), VerifyOptions(workers=1)).findings
    assert [(finding.kind, finding.offset) for finding in findings] == [("damaged-shard", (5 << 20) + 1000)]
