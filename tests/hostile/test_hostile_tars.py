"""Tars made to do harm: stops a verify that writes outside, runs what it reads, believes a size, or paints the terminal."""

import pickle
import tarfile

import pytest

pytestmark = pytest.mark.timeout(60)


def kinds(verdict):
    return {finding.kind for finding in verdict.findings}


@pytest.mark.parametrize(
    "name",
    [
        "../out.bin",
        "a/../../out.bin",
        "..",
        "../",
        "/etc/cron.d/out.bin",
        "//x/out.bin",
        "/",
        "./../out.bin",
        "a/../../../../../../out.bin",
    ],
)
def test_names_that_lead_outside(folder, tar, verdict, tmp_path, name):
    (folder / "x.tar").write_bytes(tar([("a.bin", b"1"), (name, b"2"), ("b.bin", b"3")]))
    assert verdict().exit_code == 1
    assert not (tmp_path / "out.bin").exists()


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_long_names_that_lead_outside(folder, tar, verdict, tar_format):
    (folder / "x.tar").write_bytes(tar([("../" * 60 + "out.bin", b"2")], tar_format))
    assert kinds(verdict()) == {"unsafe-name"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "a.bin", "", "x.tar", "x" * 100])
@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE],
    ids=["sym", "hard", "chr", "blk", "fifo"],
)
def test_links_and_devices(folder, tar, verdict, kind, target):
    link = tarfile.TarInfo("b.bin")
    link.type, link.linkname, link.devmajor, link.devminor = kind, target, 1, 5
    (folder / "x.tar").write_bytes(tar([("a.bin", b"1"), link, ("b.bin", b"through the link"), ("c.bin", b"2")]))
    assert kinds(verdict()) == {"not-a-file"}


TERMINAL = [
    b"a\nb.bin",
    b"a\r.bin",
    b"a\x1b]0;owned\x07.bin",
    b"a\x1b[2J\x1b[31m.bin",
    b"\x9b31m.bin",
    b"a\x7f\x08.bin",
    b"\xff\xfe.bin",
    "a\u2028b.bin".encode(),
]


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["table", "json"])
def test_names_that_paint_the_terminal(folder, tar, command, as_json):
    """Names are shown, since every one of them is a finding here."""
    members = [(name, b"x") for name in TERMINAL] * 2 + [(b"../" + name, b"x") for name in TERMINAL]
    (folder / "x\x1b[2Jy\n.tar").write_bytes(tar(members))
    outcome = command("verify", *as_json)
    assert outcome.code == 1
    assert "x\\x1b[2Jy\\n.tar" in outcome.stdout or "x\\u001b[2Jy\\n.tar" in outcome.stdout


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_nothing_is_ever_unpickled(folder, tar, verdict, tmp_path):
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    head = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + trap
    names = (
        "pkl",
        "pyd",
        "pickle",
        "pth",
        "pt",
        "npy",
        "npz",
        "ten",
        "tb",
        "mp",
        "msg",
        "cbor",
        "joblib",
        "py",
        "pyc",
        "so",
        "json",
        "cls",
    )
    (folder / "x.tar").write_bytes(tar([(f"a.{name}", array if name == "npy" else trap) for name in names]))
    assert verdict().num_samples == 1
    assert not (tmp_path / "sprung").exists()
    with open(tmp_path / "trap", "wb") as file:
        file.write(trap)
    pickle.loads(trap).close()
    assert (tmp_path / "sprung").exists(), "the trap works"
    (tmp_path / "sprung").unlink()
    (tmp_path / "trap").unlink()


SIZES = {
    "8 GiB less a byte": b"77777777777\0",
    "8 GiB without an end": b"777777777777",
    "1 TiB": b"\x80" + (1 << 40).to_bytes(11, "big"),
    "8 EiB": b"\x80" + (1 << 63).to_bytes(11, "big"),
    "2^64 - 1": b"\x80\0\0\0" + b"\xff" * 8,
    "2^88 - 1": b"\x80" + b"\xff" * 11,
    "minus one": b"\xff" * 12,
    "minus 512": b"\xff" * 10 + b"\xfe\x00",
    "minus in octal": b"-0000000777\0",
    "no digits": b"0x000000010\0",
    "blanks": b"            ",
    "an underscore": b"0000000_010\0",
    "Arabic digits": "٣".encode() * 6,
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_sizes_that_cannot_be(folder, header, verdict, size):
    tail = b"x" * 512 + bytes(10240)
    (folder / "x.tar").write_bytes(header(b"a.bin", size) + tail)
    assert verdict().exit_code == 1


@pytest.mark.parametrize("size", ["1 TiB", "8 EiB", "2^88 - 1"])
def test_sizes_of_extension_headers_that_cannot_be(folder, header, verdict, size):
    for kind in (b"x", b"g", b"L", b"K"):
        (folder / f"{kind.decode()}.tar").write_bytes(header(b"h", SIZES[size], kind) + bytes(10240))
    assert kinds(verdict()) == {"damaged-shard"}


RECORDS = {
    "a length of thousands of digits": b"9" * 5000 + b" path=x\n",
    "a length beyond the header": b"999999999 path=x\n",
    "a length of zero": b"0 path=x\n",
    "a negative length": b"-9 path=x\n",
    "no newline": b"9 path=xy",
    "a size of a thousand digits": b"1015 size=" + b"9" * 1004 + b"\n",
    "a negative size": b"11 size=-5\n",
    "a size above the file": b"22 size=1099511627776\n",
    "a sparse map": b"22 GNU.sparse.major=1\n" + b"23 GNU.sparse.size=999\n",
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_extension_records_that_cannot_be(folder, header, tar, verdict, record):
    """Sparse members, too, are shown to readers with another length and name than they have."""
    block = header(b"h", b"%011o\0" % len(record), b"x") + record + bytes(-len(record) % 512)
    (folder / "x.tar").write_bytes(block + tar([("a.bin", b"1")]))
    assert verdict().exit_code == 1


def test_an_endless_chain_of_extension_headers(folder, header, verdict):
    block = header(b"h", b"%011o\0" % 9, b"x") + b"9 path=x\n".ljust(512, b"\0")
    (folder / "x.tar").write_bytes(block * 20_000 + bytes(1024))
    assert kinds(verdict()) == {"damaged-shard"}


def test_thirty_thousand_faults_are_no_flood(folder, header, command):
    (folder / "x.tar").write_bytes(b"".join(header(b"../%d" % i) for i in range(30_000)) + bytes(1024))
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.stdout.count("\n") < 500
    assert outcome.peak_mib < 300
