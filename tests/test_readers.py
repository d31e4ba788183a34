"""Stops datasets that some reader of the field reads as other bytes than the sources hold."""

import io
import json
import os
import warnings
from pathlib import Path

import pytest

KINDS = ("jpg", "png", "jpeg")


def source_bytes(root: Path) -> dict[str, bytes]:
    """Every file below a folder by relative path, hidden ones left out."""
    found = {}
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in names:
            if not name.startswith(".") and name != "Thumbs.db":
                path = Path(folder) / name
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


@pytest.fixture
def pairs(image_pairs) -> Path:
    return image_pairs(150, KINDS)


@pytest.fixture
def images(corpora) -> Path:
    return corpora / "images"


# Small, real pairs: the key is the path without its extension, and no name needs an escape.


@pytest.fixture
def packed_tars(pairs, build, tmp_path) -> Path:
    build(pairs, tmp_path / "wds", "wds", shard_bytes=61440)
    assert len(list((tmp_path / "wds").glob("*.tar"))) > 3
    return tmp_path / "wds"


def test_tarfile_reads_the_pairs(pairs, packed_tars, read_tars):
    assert read_tars(packed_tars) == source_bytes(pairs)


def test_gnu_tar_extracts_the_pairs(pairs, packed_tars, gnu_tar, tmp_path):
    out = tmp_path / "extracted"
    out.mkdir()
    for path in sorted(packed_tars.glob("*.tar")):
        gnu_tar("-xf", path, "-C", out)
    assert source_bytes(out) == source_bytes(pairs)


@pytest.mark.train
def test_webdataset_reads_the_pairs(pairs, packed_tars, read_webdataset):
    samples = read_webdataset(packed_tars)
    assert len(samples) == 150
    found = {f"{sample['__key__']}.{name}": value for sample in samples for name, value in sample.items() if name != "__key__"}
    assert found == source_bytes(pairs)


@pytest.mark.train
def test_webdataset_decodes_the_pairs(webdataset, pairs, packed_tars):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        urls = [str(path) for path in sorted(packed_tars.glob("*.tar"))]
        samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode("pil"))
    sources = source_bytes(pairs)
    for sample in samples:
        (kind,) = [kind for kind in KINDS if kind in sample]
        assert sample[kind].size == (24, 18)
        assert sample["json"] == json.loads(sources[f"{sample['__key__']}.json"])


def test_the_raw_rows_of_mds_are_the_pairs(pairs, build, read_mds_raw, tmp_path):
    build(pairs, tmp_path / "mds", "mds", shard_bytes=61440)
    assert len(list((tmp_path / "mds").glob("*.mds"))) > 2
    sources = source_bytes(pairs)
    rows = read_mds_raw(tmp_path / "mds")
    assert len(rows) == 150 and set(rows[0]) == {"image", "json", "key"}
    for row in rows:
        key = row["key"].decode()
        assert row["json"] == sources[f"{key}.json"]
        assert row["image"] in [sources.get(f"{key}.{kind}") for kind in KINDS]


@pytest.mark.train
@pytest.mark.parametrize("kind", ["jpg", "png"])
def test_streaming_dataset_decodes_the_pairs(image_pairs, build, read_streaming, tmp_path, kind):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: it decodes the images")
    pairs = image_pairs(60, [kind])
    build(pairs, tmp_path / "mds", "mds", shard_bytes=61440)
    sources = source_bytes(pairs)
    rows = read_streaming(tmp_path / "mds")
    assert [row["key"] for row in rows] == sorted(name.removesuffix(".json") for name in sources if name.endswith(".json"))
    for row in rows:
        assert row["json"] == json.loads(sources[f"{row['key']}.json"])
        assert row[kind].tobytes() == pillow.open(io.BytesIO(sources[f"{row['key']}.{kind}"])).tobytes()


@pytest.mark.train
def test_streaming_dataset_reads_bytes_as_they_are(pairs, build, read_streaming, tmp_path):
    build(pairs, tmp_path / "mds", "mds", group="file", shard_bytes=61440)
    rows = read_streaming(tmp_path / "mds")
    assert {row["data"] for row in rows} == set(source_bytes(pairs).values())
    assert len(rows) == 300


# 702 odd files: dotted and mixed-case names, one stem with several extensions, damaged images.


def by_key(sources: dict[str, bytes]) -> dict[str, tuple[str, bytes]]:
    """What ``--group file`` makes of paths: key, field, bytes. Written anew from the rule: =XX for all but A-Z a-z 0-9 _ - /."""
    found = {}
    for path, data in sources.items():
        key = "".join(c if c.isascii() and (c.isalnum() or c in "_-/") else "".join(f"={b:02X}" for b in c.encode()) for c in path)
        parts = [f"={ord(part[0]):02X}{part[1:]}" if part[0] in "_-" else part for part in key.split("/")]
        name = path.rpartition("/")[2]
        found["/".join(parts)] = (name.rpartition(".")[2].lower() if "." in name else "bin", data)
    return found


@pytest.mark.train
def test_the_odd_images_come_back_from_every_reader_of_tar(images, build, read_tars, read_webdataset, gnu_tar, tmp_path):
    result = build(images, tmp_path / "wds", "wds", group="file", shard_bytes=8 << 20)
    sources = by_key(source_bytes(images))
    assert result.manifest.ledger.num_written == len(sources) == 702
    members = {f"{key}.{field}": data for key, (field, data) in sources.items() if len(key) <= 80}
    read = read_tars(tmp_path / "wds")
    assert {name: read[name] for name in members} == members
    long_ones = sorted(data for key, (_, data) in sources.items() if len(key) > 80)
    assert sorted(read[name] for name in read.keys() - members.keys()) == long_ones
    samples = read_webdataset(tmp_path / "wds")
    assert {f"{s['__key__']}.{name}": value for s in samples for name, value in s.items() if name != "__key__"} == read
    out = tmp_path / "extracted"
    out.mkdir()
    for path in sorted((tmp_path / "wds").glob("*.tar")):
        gnu_tar("-xf", path, "-C", out)
    assert source_bytes(out) == read


@pytest.mark.train
def test_the_odd_images_come_back_from_mds(images, build, read_streaming, read_mds_raw, tmp_path):
    build(images, tmp_path / "mds", "mds", group="file", shard_bytes=8 << 20)
    sources = by_key(source_bytes(images))
    rows = read_mds_raw(tmp_path / "mds")
    assert len(rows) == 702
    (column,) = set(rows[0]) - {"key"}
    short = {key: data for key, (_, data) in sources.items() if len(key) <= 80}
    found = {row["key"].decode(): row[column] for row in rows}
    assert {key: found[key] for key in short} == short
    assert sorted(found.values()) == sorted(data for _, data in sources.values())
    decoded = read_streaming(tmp_path / "mds")
    assert {row["key"]: row[column] for row in decoded} == found


@pytest.mark.train
def test_a_folder_of_text_comes_back(corpora, build, read_tars, read_streaming, tmp_path):
    build(corpora / "text", tmp_path / "wds", "wds", group="file")
    sources = by_key(source_bytes(corpora / "text"))
    assert read_tars(tmp_path / "wds") == {f"{key}.{field}": data for key, (field, data) in sources.items()}
    build(corpora / "text", tmp_path / "mds", "mds", group="file")
    assert {row["key"]: row["data"] for row in read_streaming(tmp_path / "mds")} == {key: data for key, (_, data) in sources.items()}
