"""What each reader does to the names of members; stops a lint that is silent where a reader drops, merges or renames, or stops."""

import contextlib
import json
import random
import subprocess
import sys
import tarfile
import warnings

import pytest

from shardtools.datasets import open_dataset

D, M, R, X = "target-drops", "target-merges", "target-renames", "target-rejects"

# By reader, from the reference page's table of names; each name stands between two plain samples.
NAMES = {
    "a.JPG": {"webdataset": [R], "hf": [D], "energon": [], "dali": [D], "wids": []},
    "a.seg.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [], "wids": []},
    "d.1/a.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [], "wids": []},
    "r.3/x.5.png": {"webdataset": [R], "hf": [R], "energon": [R], "dali": [R], "wids": [R]},
    "d.1/a": {"webdataset": [D], "hf": [D], "energon": [D], "dali": [D], "wids": [M]},
    "README": {"webdataset": [D], "hf": [D], "energon": [D], "dali": [R], "wids": [D]},
    ".hidden.jpg": {"webdataset": [D], "hf": [D], "energon": [D], "dali": [D], "wids": [M]},
    "d/._a.jpg": {"webdataset": [M], "hf": [D], "energon": [M], "dali": [D], "wids": [M]},
    "d.1/.a.jpg": {"webdataset": [D], "hf": [D], "energon": [D], "dali": [D], "wids": [M]},
    "IMG 2.0 (x).mp3": {"webdataset": [R], "hf": [R], "energon": [R], "dali": [X, R], "wids": [R]},
    "a..jpg": {"webdataset": [R], "hf": [R], "energon": [R], "dali": [R], "wids": [R]},
    "a.": {"webdataset": [R], "hf": [R], "energon": [R], "dali": [R], "wids": [R]},
    "__info__.json": {"webdataset": [], "hf": [D], "energon": [], "dali": [], "wids": []},
    "__x.jpg": {"webdataset": [], "hf": [D], "energon": [], "dali": [], "wids": []},
    "__meta__": {"webdataset": [D], "hf": [D], "energon": [D], "dali": [R], "wids": [D]},
    "__pycache__/x.pyc": {"webdataset": [D], "hf": [], "energon": [D], "dali": [], "wids": []},
    "d/__meta__/b.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [], "wids": []},
    "a.__key__": {"webdataset": [X], "hf": [X], "energon": [X], "dali": [], "wids": []},
    "a.__url__": {"webdataset": [X], "hf": [X], "energon": [], "dali": [], "wids": []},
    "a.__bad__": {"webdataset": [D], "hf": [], "energon": [], "dali": [], "wids": []},
    "a.__local_path__": {"webdataset": [D], "hf": [], "energon": [], "dali": [], "wids": []},
    "a._x": {"webdataset": [D], "hf": [], "energon": [], "dali": [], "wids": []},
    "a\nb.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [X], "wids": [X]},
    "a b.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [X], "wids": []},
    "a\\b.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [R], "wids": []},
    "ä.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [X], "wids": []},
    "./a.jpg": {"webdataset": [], "hf": [], "energon": [], "dali": [], "wids": []},
    "22.05.png": {"webdataset": [R], "hf": [R], "energon": [R], "dali": [R], "wids": [R]},
}
READERS = ("webdataset", "hf", "energon", "dali", "wids")


def with_plain(name):
    """Ten plain samples, so that what few samples share stands out, with the same field where there is one."""
    field = name.rpartition("/")[2].rpartition(".")[2]
    field = field if field.isalnum() and field.islower() else "txt"
    return [*(f"k{i}.{field}" for i in range(9)), name, f"z.{field}"]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_table(shard, kinds_of, reader, name):
    """Schema findings of Hugging Face are another test's; a name must bring nothing else."""
    found = kinds_of(shard(with_plain(name)), reader)
    expected = NAMES[name][reader]
    if reader == "hf" and found != sorted(expected):
        found.remove(D)  # the field is none of the first five
    assert found == sorted(expected)


def test_a_name_that_is_no_utf8(shard, kinds_of):
    folder = shard(["a.jpg", (b"\x92.jpg", b"x")])
    for reader in READERS:
        assert kinds_of(folder, reader) == [X], reader


@pytest.mark.parametrize("reader", READERS)
def test_a_finding_names_reader_shard_member_and_offset(shard, lint, reader):
    (found, *_) = lint(shard(["a.jpg", "b/c", "README"]), reader)
    assert (found.shard, found.offset) == ("train-0.tar", 1024)
    assert reader in found.detail
    assert "'b/c' in train-0.tar at byte 1024" in found.detail


def test_a_million_faults_are_one_finding(shard, lint):
    (found,) = lint(shard([f"k{i}.JPG" for i in range(50)]), "webdataset")
    assert "got 50 members with capitals in the field" in found.detail
    assert [f"'k{i}.JPG'" in found.detail for i in range(4)] == [True, True, True, False]
    assert len(found.detail) < 400


@pytest.mark.parametrize("reader", ["energon", "wids"])
def test_a_field_in_two_spellings(shard, lint, reader):
    """They are two fields for readers that keep capitals."""
    (found,) = lint(shard(["a.jpg", "b.jpg", "c.JPG", "d.JPG"]), reader)
    assert (found.kind, found.key) == (D, "c")


@pytest.mark.parametrize("reader", READERS)
def test_numbered_fields_of_every_sample_are_fields(shard, kinds_of, reader):
    assert kinds_of(shard([f"k{i}.{view}.jpg" for i in range(6) for view in (0, 1)]), reader) == []


# Against the library itself.


def grouped(webdataset, folder):
    """The samples the library makes of all tars of a folder. Its own opener would leave files open where it stops."""
    readers = webdataset.tariterators
    with contextlib.ExitStack() as files:
        opened = [{"url": str(path), "stream": files.enter_context(open(path, "rb"))} for path in sorted(folder.glob("*.tar"))]
        return list(readers.group_by_keys(readers.tar_file_expander(opened)))


def delivered(webdataset, folder):
    """Key and field of every member webdataset delivers; None where it stops."""
    try:
        samples = grouped(webdataset, folder)
    except ValueError:
        return None
    return {(sample["__key__"], name) for sample in samples for name in sample if name not in ("__key__", "__url__")}


@pytest.mark.train
def test_webdataset_delivers_all_but_what_is_found(webdataset, shard, lint):
    """On random names: no finding if and only if every member is delivered under the key and field the strict parse sees."""
    seed = 71
    print("seed", seed)
    numbers = random.Random(seed)
    parts = ["a", "B", ".", "/", "__", "x", "jpg", "JPG", ".json", "_", "1", " ", "meta"]
    num_faulty = 0
    for i in range(400):
        name = "".join(numbers.choices(parts, k=numbers.randint(1, 6))).strip("/").replace("//", "/") or "a"
        if name.rpartition("/")[2] in (".", ".."):
            continue
        folder = shard([name], folder=f"data{i}")
        kinds = {finding.kind for finding in lint(folder, "webdataset")}
        (strict,) = [(sample.key, field) for _, sample in open_dataset(str(folder)).all_samples() for field in sample.values]
        got = delivered(webdataset, folder)
        if D in kinds and "whose field begins with _" not in lint(folder, "webdataset")[0].detail:
            assert got == set(), name
        elif X in kinds:
            assert got is None, name
        else:
            assert got == {(strict[0], strict[1].lower())}, name
            if strict[1] != strict[1].lower():
                assert R in kinds, name
            hidden = name.rpartition("/")[2].startswith(".")
            assert (M in kinds) == hidden, name
        num_faulty += bool(kinds)
    assert 100 < num_faulty < 390


@pytest.mark.train
@pytest.mark.parametrize(
    ("members", "kinds"),
    [
        (["a.jpx", "a.JPX"], [X, R]),
        (["a.x", "a.x"], [X]),
        (["a.__key__"], [X]),
        (["a.__url__", "a.x"], [X]),
    ],
)
def test_webdataset_stops(webdataset, shard, kinds_of, members, kinds):
    folder = shard(members)
    assert kinds_of(folder, "webdataset") == kinds
    assert delivered(webdataset, folder) is None


@pytest.mark.train
def test_a_bad_field_drops_the_sample(webdataset, shard, kinds_of):
    folder = shard(["a.__bad__", "a.jpg", "b.jpg"])
    assert kinds_of(folder, "webdataset") == [D]
    assert delivered(webdataset, folder) == {("b", "jpg")}


@pytest.mark.train
def test_members_between_the_parts_of_a_sample(webdataset, shard, kinds_of):
    """A README between them does not part them for webdataset; nothing but its loss is found."""
    folder = shard(["a.x", "README", "a.y"])
    assert kinds_of(folder, "webdataset") == [D]
    assert len(grouped(webdataset, folder)) == 1


def link(name, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "a.jpg"
    return info


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_links_are_dropped_and_folders_are_none_of_it(shard, kinds_of, reader, kind):
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    assert kinds_of(shard([folder, "a.jpg", link("b.jpg", kind)]), reader) == [D]


# Tar dialects.

LONG = "d" * 60 + "/" + "n" * 60 + ".jpg"
VERY_LONG = "n" * 150 + ".jpg"


@pytest.mark.parametrize(
    ("names", "tar_format", "expected"),
    [
        ([LONG], tarfile.USTAR_FORMAT, {"wids": [M]}),
        ([VERY_LONG], tarfile.PAX_FORMAT, {"wids": [D], "dali": [X]}),
        ([VERY_LONG], tarfile.GNU_FORMAT, {"wids": [D], "dali": [X]}),
        (["x." + "y" * 150], tarfile.GNU_FORMAT, {"wids": [M], "dali": [X]}),
        (["ä.jpg"], tarfile.PAX_FORMAT, {"wids": [M], "dali": [X, X]}),
        (["a.jpg"], tarfile.GNU_FORMAT, {}),
    ],
)
def test_names_that_need_more_than_the_name_field(shard, kinds_of, names, tar_format, expected):
    folder = shard(names, tar_format=tar_format)
    for reader in READERS:
        assert kinds_of(folder, reader) == expected.get(reader, []), reader


@pytest.mark.train
def test_webdatasets_own_writer_is_no_writer_for_dali(webdataset, tmp_path, kinds_of):
    """Its default writes an extension header before every member."""
    (tmp_path / "data").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with webdataset.TarWriter(str(tmp_path / "data/a.tar")) as sink:
            sink.write({"__key__": "a", "txt": "x"})
    assert kinds_of(tmp_path / "data", "dali") == [X]
    assert kinds_of(tmp_path / "data", "webdataset", "hf", "energon", "wids") == []


# Against wids, in a folder of its own.

READ_WIDS = """
import json, sys, warnings
warnings.simplefilter("ignore")
from wids.wids import IndexedTarSamples
out = []
for path in sys.argv[1:]:
    try:
        samples = IndexedTarSamples(path=path)
        read = [dict(samples[i]) for i in range(len(samples))]
        out.append([[sample.pop("__key__"), sorted(sample)] for sample in read])
    except Exception as error:
        out.append(type(error).__name__)
print(json.dumps(out))
"""


@pytest.mark.slow
@pytest.mark.train
def test_wids_itself(shard, kinds_of, tmp_path):
    """A finding if and only if wids does not deliver the strict parse's keys and fields, but for the dot before each field."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "site"), "wids==0.1.11"]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"could not install wids: {installed.stderr.splitlines()[-1:]}")
    cases = [([name], tarfile.USTAR_FORMAT) for name in NAMES]
    cases += [([LONG], tarfile.USTAR_FORMAT), ([VERY_LONG], tarfile.PAX_FORMAT), (["ä.jpg"], tarfile.PAX_FORMAT)]
    cases += [
        (["a.x", "b.x", "a.x"], tarfile.USTAR_FORMAT),
        (["a.x", "a.y", "b.x"], tarfile.USTAR_FORMAT),
        ([(b"\x92.jpg", b"x")], tarfile.USTAR_FORMAT),
    ]
    folders = [shard(members, folder=f"c{i}", tar_format=tar_format) for i, (members, tar_format) in enumerate(cases)]
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{READ_WIDS}"
    paths = [str(folder / "train-0.tar") for folder in folders]
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout.splitlines()[-1])
    for (members, _), folder, result in zip(cases, folders, results, strict=True):
        kinds = [kind for kind in kinds_of(folder, "wids") if kind != R]  # a dotted stem is no matter of wids alone
        strict = [[sample.key, sorted("." + field for field in sample.values)] for _, sample in open_dataset(str(folder)).all_samples()]
        merged = any(str(member).rpartition("/")[2].startswith(".") for member in members)
        assert bool(kinds) == (result != strict or merged), (members, result, strict, kinds)
        if X in kinds:
            assert isinstance(result, str), (members, result)
