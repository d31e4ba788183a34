"""Paths that lead nowhere or out of the folder of media; stops a dataset from taking in what nobody meant to publish, and a run from
ending over one record.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from step_orders import pack, tar_samples

from shardtools.errors import BadSampleError, StorageError
from shardtools.transforms import _embed_read

GOOD = b"\xff\xd8\xffgood"
SECRET = b"\xff\xd8\xffsecret"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """``src/d.jsonl`` of one sound record; beside ``src`` and in it what paths may lead to."""
    (tmp_path / "src/img/sub").mkdir(parents=True)
    (tmp_path / "out of it").mkdir()
    (tmp_path / "secret.jpg").write_bytes(SECRET)
    (tmp_path / "out of it/secret.jpg").write_bytes(SECRET)
    (tmp_path / "src.jpg").write_bytes(SECRET)
    img = tmp_path / "src/img"
    for name in ("good.jpg", "sub/good.jpg", "a\\b.jpg", "日本.jpg", "..jpg", "dots..jpg"):
        (img / name).write_bytes(GOOD)
    (img / "folder.jpg").mkdir()
    os.mkfifo(img / "fifo.jpg")
    (img / "inside.jpg").symlink_to("sub/good.jpg")
    (img / "outside.jpg").symlink_to("../../secret.jpg")
    (img / "sibling.jpg").symlink_to("../../src.jpg")
    (img / "absolute.jpg").symlink_to(tmp_path / "secret.jpg")
    (img / "dangling.jpg").symlink_to("nothing.jpg")
    (img / "loop.jpg").symlink_to("loop.jpg")
    (img / "to_fifo.jpg").symlink_to("fifo.jpg")
    (img / "inner").symlink_to("sub")
    (img / "outer").symlink_to(tmp_path / "out of it")
    return tmp_path / "src"


def lines(source: Path, value: Any) -> Path:
    path = source / "d.jsonl"
    path.write_text("".join(json.dumps({"image": one}) + "\n" for one in ("img/good.jpg", value)))
    return path


@pytest.mark.parametrize(
    "path",
    [
        "img/sub/good.jpg",
        "./img//sub/../good.jpg",
        "img/inside.jpg",
        "img/inner/good.jpg",
        "img/a\\b.jpg",
        "img/日本.jpg",
        "img/..jpg",
        "img/dots..jpg",
        "{src}/img/good.jpg",
    ],
)
def test_what_stays_below_the_folder_is_taken_in(path: str, source: Path, tmp_path: Path) -> None:
    pack(lines(source, path.replace("{src}", str(source))), tmp_path / "out", embed="image=jpg|bin")
    taken = [sample[next(name for name in sample if name != "json")] for sample in tar_samples(tmp_path / "out").values()]
    assert taken == [GOOD, GOOD]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("../secret.jpg", "media-outside"),
        ("img/../../secret.jpg", "media-outside"),
        ("..", "media-outside"),
        (".", "media-outside"),
        ("{tmp}/secret.jpg", "media-outside"),
        ("{tmp}/src.jpg", "media-outside"),
        ("{tmp}/src/../secret.jpg", "media-outside"),
        ("/etc/hostname.jpg", "media-outside"),
        ("img/outside.jpg", "media-outside"),
        ("img/absolute.jpg", "media-outside"),
        ("img/sibling.jpg", "media-outside"),
        ("img/outer/secret.jpg", "media-outside"),
        ("img/inner/../../../secret.jpg", "media-outside"),
        ("http://example.invalid/a.jpg", "media-outside"),
        ("file:///etc/hostname.jpg", "media-outside"),
        ("s3://bucket/a.jpg", "media-outside"),
        ("img/none.jpg", "media-missing"),
        ("img/none/good.jpg", "media-missing"),
        ("img/good.jpg/good.jpg", "media-missing"),
        ("img/dangling.jpg", "media-missing"),
        ("C:\\img\\good.jpg", "media-missing"),
        ("img/folder.jpg", "media-unreadable"),
        ("img/fifo.jpg", "media-unreadable"),
        ("img/to_fifo.jpg", "media-unreadable"),
        ("img/loop.jpg", "media-unreadable"),
        ("img/" + "x" * 300 + ".jpg", "media-unreadable"),
        ("img/a\0b.jpg", "media-unreadable"),
        ("img/good.png", "media-extension"),
        ("", "no-media"),
        (None, "no-media"),
        (5, "no-media"),
        ({"path": "img/good.jpg"}, "no-media"),
    ],
)
def test_what_does_not_is_a_bad_sample_with_its_reason(value: Any, reason: str, source: Path, tmp_path: Path, one_sentence: Any) -> None:
    value = value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value
    path = lines(source, value)
    with pytest.raises(BadSampleError) as caught:
        pack(path, tmp_path / "strict", embed="image=jpg")
    assert one_sentence(caught.value).startswith("bad sample: d.jsonl, line 2 (byte ")
    result = pack(path, tmp_path / "out", embed="image=jpg", max_bad="1")
    assert dict(result.manifest.ledger.rejects) == {reason: 1}
    assert result.manifest.ledger.num_written == 1
    assert [sample["jpg"] for sample in tar_samples(tmp_path / "out").values()] == [GOOD]
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or SECRET not in file.read_bytes()
    # What is rejected is published: of this machine's paths it holds those of the records alone.
    rejects = (tmp_path / "out/.shardtools/rejects").read_text()
    assert str(tmp_path) not in rejects or str(tmp_path) in str(value)
    assert "; " in json.loads(rejects)["sentence"], "it says what to do"


def test_one_bad_path_of_a_list_costs_its_sample_alone(source: Path, tmp_path: Path) -> None:
    path = source / "d.jsonl"
    good, sub = "img/good.jpg", "img/sub/good.jpg"
    rows = [[good, sub], [good, "img/none.jpg"], ["img/none.jpg", sub], [sub, "../x.jpg"], [sub, good]]
    path.write_text("".join(json.dumps({"n": i, "m": row}) + "\n" for i, row in enumerate(rows)))
    (source / "img/sub/good.jpg").write_bytes(b"\xff\xd8\xffsub")
    result = pack(path, tmp_path / "out", embed="m", max_bad="3")
    assert dict(result.manifest.ledger.rejects) == {"media-missing": 2, "media-outside": 1}
    found = [(json.loads(one["json"])["n"], one["m.0.jpg"][3:], one["m.1.jpg"][3:]) for one in tar_samples(tmp_path / "out").values()]
    assert found == [(0, b"good", b"sub"), (4, b"sub", b"good")]


def test_the_folder_may_be_a_link_itself(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("src")
    path = lines(source, "img/inside.jpg")
    pack(path, tmp_path / "out", embed="image", media_root=tmp_path / "link")
    assert [sample["jpg"] for sample in tar_samples(tmp_path / "out").values()] == [GOOD, GOOD]
    # A path of the folder as the command line names it; the same folder under another name is another.
    pack(lines(source, f"{tmp_path}/link/img/good.jpg"), tmp_path / "named", embed="image", media_root=tmp_path / "link")
    result = pack(lines(source, f"{source}/img/good.jpg"), tmp_path / "other", embed="image", media_root=tmp_path / "link", max_bad="1")
    assert dict(result.manifest.ledger.rejects) == {"media-outside": 1}


def test_trouble_with_the_disk_is_no_bad_sample(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_sentence: Any) -> None:
    real_open = os.open

    def failing(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).endswith("sub/good.jpg"):
            raise OSError(5, "Input/output error")
        return real_open(path, *arguments, **more)

    monkeypatch.setattr(_embed_read.os, "open", failing)
    with pytest.raises(StorageError) as caught:
        pack(lines(source, "img/sub/good.jpg"), tmp_path / "out", embed="image", max_bad="100%")
    assert "the device reports an error" in one_sentence(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_bad_sample(source: Path, tmp_path: Path) -> None:
    (source / "img/sub/good.jpg").chmod(0)
    result = pack(lines(source, "img/sub/good.jpg"), tmp_path / "out", embed="image", max_bad="1")
    assert dict(result.manifest.ledger.rejects) == {"media-unreadable": 1}
