"""Sound datasets have no findings; stops a verify that cries wolf, or whose answer depends on how the work was spread."""

import json
import os

import pytest

from shardtools.errors import UsageError
from shardtools.formats.mds import Mds
from shardtools.verify import Checked, VerifyOptions, verify


@pytest.mark.parametrize("name", ["wds", "mds", "zipped"])
def test_a_published_dataset_is_sound(name, request):
    verdict = verify(str(request.getfixturevalue(name)))
    assert verdict.findings == ()
    assert (verdict.exit_code, verdict.num_samples, verdict.has_keys) == (0, 40, True)
    assert verdict.closing().startswith(f"Sound: {verdict.num_shards} shards, 40 samples, ")
    assert "No key occurs twice." in verdict.closing()


@pytest.mark.parametrize("shard_format", ["wds", "mds"])
def test_real_images_with_rejects_are_sound(shard_format, build, image_pairs, rows, tmp_path):
    build(image_pairs(31), tmp_path / "out", shard_format, shard_samples=4)
    assert verify(str(tmp_path / "out")).findings == ()
    source = rows([b"a", b"bad1", b"b", b"bad2"], {"bin": [b"1", b"2", b"3", b"4"]}, {"bin": "bytes"})
    build(tmp_path / "pairs", tmp_path / "some", shard_format, source=source, max_bad="2")
    assert (tmp_path / "some/.shardtools/rejects").exists()
    assert verify(str(tmp_path / "some")).findings == ()


def test_optional_fields_and_a_dataset_without_keys_are_sound(build, rows, tmp_path):
    source = rows([b"a", b"b"], {"x": [b"1", None], "y": [None, b"2"]}, {"x": "bytes", "y": "bytes"})
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "tar", "wds", source=source)
    assert verify(str(tmp_path / "tar")).findings == ()
    build(tmp_path / "src", tmp_path / "mds", Mds(key_column=None), source=source, shard_samples=1)
    verdict = verify(str(tmp_path / "mds"))
    assert verdict.findings == ()
    assert not verdict.has_keys
    assert "No key occurs twice" not in verdict.closing()


def test_workers_change_nothing(wds, forge):
    data = (wds / "train-000001.tar").read_bytes()
    forge(wds, "train-000001.tar", data[:600] + bytes([data[600] ^ 1]) + data[601:])
    (wds / "train-000002.tar").unlink()
    alone = verify(str(wds), VerifyOptions(workers=1))
    together = verify(str(wds), VerifyOptions(workers=3))
    assert alone.findings == together.findings
    assert len(alone.findings) == 2


def test_progress_adds_up_to_the_whole(wds):
    events: list[Checked] = []
    verify(str(wds), VerifyOptions(workers=1), events.append)
    total = sum((wds / name).stat().st_size for name in os.listdir(wds) if name.endswith(".tar"))
    assert {event.total_bytes for event in events} == {total}
    assert sum(event.num_bytes for event in events) == total
    assert sum(event.num_samples for event in events) == 40


def test_a_verdict_is_plain_json(wds):
    (wds / "train-000000.tar").unlink()
    content = json.loads(json.dumps(verify(str(wds)).as_json()))
    names = [
        "schema",
        "uri",
        "format",
        "published",
        "sound",
        "strict",
        "shards",
        "samples",
        "bytes",
        "levels",
        "findings",
        "notes",
        "counts",
    ]
    assert sorted(content) == sorted([*names, "unchecked_fields", "proved", "closing", "seconds"])
    assert content["schema"] == "shardtools.verdict/1"
    assert content["levels"][3].keys() == {"level", "proves", "looked_at", "findings", "notes"}
    assert (content["format"], content["published"], content["sound"]) == ("wds", True, False)
    assert [level["findings"] for level in content["levels"]] == [1, 0, 0, 0, 0, 0, 0]
    (finding,) = content["findings"]
    assert finding == {
        "kind": "missing-file",
        "level": 1,
        "note": False,
        "shard": "train-000000.tar",
        "key": None,
        "offset": None,
        "count": 1,
        "detail": "expected a file of 20,480 bytes, got none",
        "remedy": "restore the file from a sound copy, or make the dataset again",
    }


def test_verify_changes_nothing(wds, digests):
    before = digests(wds)
    verify(str(wds))
    assert digests(wds) == before


def test_a_folder_that_is_no_dataset_is_wrong_use(tmp_path, one_sentence):
    with pytest.raises(UsageError) as caught:
        verify(str(tmp_path))
    assert "shardtools.manifest" in one_sentence(caught.value)


def test_an_unfinished_build_is_reported_as_one(wds):
    (wds / ".shardtools/build").mkdir()
    (wds / ".shardtools/plan").rename(wds / ".shardtools/build/plan")
    (wds / "shardtools.manifest").unlink()
    verdict = verify(str(wds))
    assert [finding.kind for finding in verdict.findings] == ["unfinished-build"]
    assert verdict.exit_code == 1
