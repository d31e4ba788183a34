"""Stops files from being joined into the wrong samples, or stored under the wrong key or field."""

import io
import json
import os
import random
import sys

import pytest

from shardtools.errors import BadSampleError, DuplicateKeyError, UsageError
from shardtools.sources._grouping import parse_field_rules


def contents(*names: str) -> dict[str, bytes]:
    """Each file holds its own name, so that a mix-up shows."""
    return {name: name.encode() for name in names}


@pytest.fixture
def wds(tree, build, read_tars, tmp_path):
    """Pack files of these names to WDS and read every member back: ``wds("a.jpg", group="file")``."""

    def call(*names: str, **options) -> dict[str, str]:
        build(tree(contents(*names)), tmp_path / "out", "wds", **options)
        return {name: data.decode() for name, data in read_tars(tmp_path / "out").items()}

    return call


@pytest.fixture
def mds(tree, build, read_mds_raw, tmp_path):
    """The same to MDS, every column as ``bytes`` so that no image is asked for."""

    def call(*names: str, encodings=None, **options) -> list[dict[str, str]]:
        build(tree(contents(*names)), tmp_path / "out", "mds", encodings=encodings or {}, **options)
        return [{name: data.decode() for name, data in row.items()} for row in read_mds_raw(tmp_path / "out")]

    return call


def same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# Where names leave no choice.


def test_files_that_share_folder_and_stem_are_one_sample_in_order_of_keys(wds):
    members = wds("b/2.txt", "b/2.jpg", "a/1.txt", "a/1.jpg", "b/10.jpg", "b/10.txt")
    assert list(members) == ["a/1.jpg", "a/1.txt", "b/10.jpg", "b/10.txt", "b/2.jpg", "b/2.txt"]
    assert members == same(*members)


def test_extensions_are_stored_in_lower_case(wds):
    assert wds("a.JPG", "b.Jpg") == {"a.jpg": "a.JPG", "b.jpg": "b.Jpg"}


def test_the_order_is_that_of_bytes_not_of_a_language(wds):
    names = ["Z.txt", "a.txt", "B.txt", "10.txt", "9.txt", "é.txt"]
    members = wds(*names)
    assert list(members) == ["10.txt", "9.txt", "=C3=A9.txt", "B.txt", "Z.txt", "a.txt"]


def test_a_file_without_an_extension_has_a_field_of_its_own(wds):
    assert wds("README", "d/LICENSE") == {"README.bin": "README", "d/LICENSE.bin": "d/LICENSE"}


def test_a_name_that_ends_in_a_dot_has_no_extension(wds):
    assert wds("a.", "b.") == {"a.bin": "a.", "b.bin": "b."}


# The rules a user names.


def test_first_dot(wds):
    members = wds("x/a.seg.png", "x/a.jpg", "x/v1.2/b.seg.png", "x/v1.2/b.jpg", group="first-dot")
    assert members == {
        "x/a.jpg": "x/a.jpg",
        "x/a.seg.png": "x/a.seg.png",
        "x/v1=2E2/b.jpg": "x/v1.2/b.jpg",
        "x/v1=2E2/b.seg.png": "x/v1.2/b.seg.png",
    }


def test_last_dot(wds):
    members = wds("a.seg.png", "a.jpg", group="last-dot")
    assert members == {"a.jpg": "a.jpg", "a=2Eseg.png": "a.seg.png"}


def test_file_makes_each_file_a_sample_with_its_whole_name_as_key(wds):
    members = wds("d/a.seg.png", "d/a.png", "d/b", group="file")
    assert members == {"d/a=2Epng.png": "d/a.png", "d/a=2Eseg=2Epng.png": "d/a.seg.png", "d/b.bin": "d/b"}


# What is chosen where the user names no rule.


def test_first_dot_is_taken_where_only_it_is_uniform(wds, plan, tree):
    names = ["a.jpg", "a.seg.png", "b.jpg", "b.seg.png"]
    assert list(wds(*names)) == names
    notes = plan(tree(contents(*names))).survey.notes
    assert any("--group first-dot" in note and "2 samples of jpg+seg.png" in note for note in notes)


def test_last_dot_is_taken_where_only_it_is_uniform(wds, plan, tree):
    names = ["v1.0.jpg", "v1.0.json", "v2.jpg", "v2.json"]
    assert list(wds(*names)) == ["v1=2E0.jpg", "v1=2E0.json", "v2.jpg", "v2.json"]
    assert any("--group last-dot" in note for note in plan(tree(contents(*names))).survey.notes)


def test_aliases_count_as_one_field_when_choosing(wds):
    rules = parse_field_rules("image=jpg|png,txt")
    members = wds("v1.0.jpg", "v1.0.txt", "v2.png", "v2.txt", fields=rules)
    assert list(members) == ["v1=2E0.jpg", "v1=2E0.txt", "v2.png", "v2.txt"]


def test_single_files_of_mixed_kinds_are_one_sample_each(wds):
    members = wds("a.b.jpg", "c.png", "d.e.f.gif", "g")
    assert list(members) == ["a=2Eb.jpg", "c.png", "d=2Ee=2Ef.gif", "g.bin"]


@pytest.mark.parametrize(
    "names",
    [
        ("a.jpg", "a.seg.jpg", "b.jpg", "b.seg.jpg"),  # two fields of one sample, or two samples
        ("v1.0.jpg", "v1.1.jpg"),  # one sample of two fields, or two samples
        ("a.b.jpg", "a.c.png", "d.txt", "d.b.jpg"),  # neither is uniform
    ],
)
def test_two_readings_are_an_error_that_shows_both_and_the_flags(plan, tree, names, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tree(contents(*names)))
    text = one_sentence(caught.value)
    for flag in ("--group first-dot", "--group last-dot", "--group file"):
        assert flag in text
    assert "by the first dot" in text and "by the last dot" in text and "sample" in text


def test_where_every_sample_lacks_a_field_the_kinds_of_samples_are_shown(plan, tree, one_sentence):
    # One stem that two images share makes fields of what were single files of mixed kinds.
    with pytest.raises(UsageError) as caught:
        plan(tree(contents("a.jpg", "b.png", "c.png", "d.webp", "a.png")))
    text = one_sentence(caught.value)
    assert "fields jpg, png, webp" in text and "2 samples of png" in text
    assert "--fields 'jpg?,png?,webp?'" in text and "--group file" in text
    assert "got none" not in text


def test_no_two_files_ever_become_one_field_in_silence(wds, tmp_path, one_sentence):
    with pytest.raises(BadSampleError) as caught:
        wds("d/a.jpg", "d/a.JPG", "d/b.jpg")
    text = one_sentence(caught.value)
    assert "d/a.jpg" in text and "d/a.JPG" in text and "--group file" in text
    assert not list((tmp_path / "out").glob("*.tar"))


def test_two_files_of_one_alias_are_a_bad_sample(wds, one_sentence):
    with pytest.raises(BadSampleError) as caught:
        wds("a.jpg", "a.png", "b.jpg", fields=parse_field_rules("image=jpg|png"))
    assert "a.jpg" in str(caught.value) and "a.png" in one_sentence(caught.value)


# Fields, aliases, optional fields.


def test_mixed_media_keep_their_extension_in_tar_and_share_a_column_in_mds(wds, mds, tmp_path):
    names = ["a.jpg", "a.txt", "b.png", "b.txt", "c.gif", "c.txt"]
    assert wds(*names) == same(*names)
    (tmp_path / "out").rename(tmp_path / "wds")
    assert mds(*names) == [
        {"image": "a.jpg", "key": "a", "txt": "a.txt"},
        {"image": "b.png", "key": "b", "txt": "b.txt"},
        {"image": "c.gif", "key": "c", "txt": "c.txt"},
    ]


def test_lone_media_of_mixed_kinds_do_too(wds, mds, tmp_path):
    assert wds("a.jpg", "b.png") == same("a.jpg", "b.png")
    (tmp_path / "out").rename(tmp_path / "wds")
    assert mds("a.jpg", "b.png") == [{"image": "a.jpg", "key": "a"}, {"image": "b.png", "key": "b"}]


def test_media_of_one_encoding_keep_it_in_mds(tree, build, tmp_path):
    jpeg = b"\xff\xd8\xff\xe0"
    build(tree({"a.jpg": jpeg, "b.jpeg": jpeg}), tmp_path / "out", "mds")
    (shard,) = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    assert (shard["column_names"], shard["column_encodings"]) == (["image", "key"], ["jpeg", "str"])


def test_encodings_follow_the_extension(tree, build, tmp_path):
    files = {"a.jpg": b"\xff\xd8\xff", "a.png": b"\x89PNG\r\n\x1a\n", "a.json": b"{}", "a.txt": b"t", "a.cls": b"3", "a.npy": b"n"}
    build(tree(files), tmp_path / "out", "mds")
    (shard,) = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    found = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
    assert found == {"cls": "int", "jpg": "jpeg", "json": "json", "key": "str", "npy": "bytes", "png": "png", "txt": "str"}
    assert shard["column_names"] == sorted(shard["column_names"])


def test_an_encoding_can_be_given(tree, build, tmp_path):
    build(tree({"a.jpg": b"no image"}), tmp_path / "out", "mds", encodings={"jpg": "bytes"})
    (shard,) = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    assert shard["column_encodings"] == ["bytes", "str"]


def test_what_claims_to_be_an_image_and_is_none_is_a_bad_sample(tree, build, tmp_path, one_sentence):
    with pytest.raises(BadSampleError) as caught:
        build(tree({"d/a.jpg": b"no image"}), tmp_path / "out", "mds")
    text = one_sentence(caught.value)
    assert "d/a.jpg" in text and "JPEG" in text and "--columns jpg=bytes" in text


def test_an_optional_field_may_be_absent(wds):
    rules = parse_field_rules("txt,json?")
    assert wds("a.txt", "a.json", "b.txt", fields=rules) == same("a.json", "a.txt", "b.txt")


def test_an_absent_optional_field_in_mds_is_null_for_json_and_empty_for_text(tree, build, read_mds_raw, tmp_path):
    files = {"a.txt": b"t", "b.json": b"{}", "b.txt": b"u", "c.json": b"[]"}
    build(tree(files), tmp_path / "out", "mds", fields=parse_field_rules("txt?,json?"))
    assert read_mds_raw(tmp_path / "out") == [
        {"json": b"null", "key": b"a", "txt": b"t"},
        {"json": b"{}", "key": b"b", "txt": b"u"},
        {"json": b"[]", "key": b"c", "txt": b""},
    ]


def test_an_optional_image_in_mds_says_what_to_do(plan, tree, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tree(contents("a.txt", "a.jpg", "b.txt")), "mds", fields=parse_field_rules("txt,jpg?"))
    assert "--columns jpg=bytes" in one_sentence(caught.value)


def test_a_sample_without_a_required_field_is_bad_and_names_the_field_and_the_mark(wds, one_sentence):
    with pytest.raises(BadSampleError) as caught:
        wds("d/a.txt", "d/a.json", "d/b.txt")
    text = one_sentence(caught.value)
    assert "d/b.txt" in text and "'json'" in text and "json?" in text


def test_files_of_other_extensions_are_left_out_and_counted(plan, tree, wds):
    names = ["a.jpg", "a.txt", "a.bak", "b.jpg", "b.txt", "b.bak"]
    rules = parse_field_rules("jpg,txt")
    assert wds(*names, fields=rules) == same("a.jpg", "a.txt", "b.jpg", "b.txt")
    assert plan(tree(contents(*names)), fields=rules).survey.skipped == {".bak files": 2}


def test_an_alias_is_stored_under_the_name_where_that_is_an_extension(wds):
    assert wds("a.jpg", "b.jpeg", fields=parse_field_rules("jpg=jpg|jpeg")) == {"a.jpg": "a.jpg", "b.jpg": "b.jpeg"}


def test_one_extension_can_be_renamed(wds):
    assert wds("a.txt", fields=parse_field_rules("caption=txt")) == {"a.caption": "a.txt"}


def test_a_required_field_no_sample_has_is_wrong_use(plan, tree, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tree(contents("a.txt")), fields=parse_field_rules("txt,jpg"))
    assert "'jpg'" in one_sentence(caught.value) and "jpg?" in str(caught.value)


@pytest.mark.parametrize("text", ["", "a,,b", "=jpg", "a=", "a=x|", "jpg,jpg", "a=jpg,b=jpg", "a=jpg|jpg", "?"])
def test_fields_that_cannot_be_meant_are_wrong_use(text, one_sentence):
    with pytest.raises(UsageError) as caught:
        parse_field_rules(text)
    assert "--fields" in one_sentence(caught.value)


def test_fields_are_read_as_written():
    image, meta = parse_field_rules(" image=JPG|jpeg , json? ")
    assert (image.name, image.aliases, image.optional) == ("image", ("jpg", "jpeg"), False)
    assert (meta.name, meta.aliases, meta.optional) == ("json", ("json",), True)


# Labels and paths.


def test_labels_are_the_top_folders_in_order_of_bytes(wds):
    names = ["dog/a.jpg", "cat/x/b.jpg", "Zebra/c.jpg"]
    members = wds(*names, label_from_dir=True)
    assert members == {
        "Zebra/c.cls": "0",
        "Zebra/c.jpg": "Zebra/c.jpg",
        "cat/x/b.cls": "1",
        "cat/x/b.jpg": "cat/x/b.jpg",
        "dog/a.cls": "2",
        "dog/a.jpg": "dog/a.jpg",
    }


def test_labels_are_an_int_column_in_mds_and_their_names_are_in_the_manifest(tree, build, read_mds_raw, tmp_path):
    build(tree(contents("dog/a.txt", "cat/b.txt")), tmp_path / "out", "mds", label_from_dir=True)
    rows = read_mds_raw(tmp_path / "out")
    assert [(row["key"], row["cls"]) for row in rows] == [(b"cat/b", bytes(8)), (b"dog/a", b"\x01" + bytes(7))]
    assert '"cat",\n' in (tmp_path / "out" / "shardtools.manifest").read_text()


def test_unshuffled_labels_draw_a_warning_and_shuffled_ones_do_not(plan, tree):
    source = tree(contents("dog/a.txt", "cat/b.txt"))
    assert any("--shuffle" in note for note in plan(source, label_from_dir=True).survey.notes)
    assert not any("--shuffle" in note for note in plan(source, label_from_dir=True, seed=1).survey.notes)


def test_a_file_beside_the_label_folders_is_a_bad_sample(wds, one_sentence):
    with pytest.raises(BadSampleError) as caught:
        wds("dog/a.txt", "b.txt", label_from_dir=True)
    assert "b.txt" in one_sentence(caught.value) and "--label-from" in str(caught.value)


def test_labels_without_folders_are_wrong_use(plan, tree, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tree(contents("a.txt")), label_from_dir=True)
    assert "--label-from" in one_sentence(caught.value)


def test_labels_beside_cls_files_are_wrong_use(plan, tree, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tree(contents("d/a.txt", "d/a.cls")), label_from_dir=True)
    assert "cls" in one_sentence(caught.value)


def test_keep_path_keeps_the_name_the_key_cannot_show(tree, build, read_tars, tmp_path):
    build(tree({"ä b/c.d.jpg": b"1"}), tmp_path / "out", group="last-dot", keep_path=True)
    assert read_tars(tmp_path / "out") == {"=C3=A4=20b/c=2Ed.jpg": b"1", "=C3=A4=20b/c=2Ed.path": "ä b/c.d.jpg".encode()}


def test_the_kept_path_is_that_of_the_first_field(tree, build, read_tars, tmp_path):
    build(tree(contents("d/a.txt", "d/a.JPG")), tmp_path / "out", keep_path=True)
    assert read_tars(tmp_path / "out")["d/a.path"] == b"d/a.JPG"


def test_escaped_keys_are_counted_and_three_are_shown(plan, tree):
    notes = plan(tree(contents("a b.txt", "c d.txt", "e f.txt", "g h.txt", "ok.txt"))).survey.notes
    (note,) = [note for note in notes if "escaped" in note]
    assert note.startswith("4 keys escaped") and "'a b' is a=20b" in note and "e=20f" in note and "g=20h" not in note


# Several roots, lists, shuffling.


def test_several_roots_are_one_dataset_in_order_of_keys(tree, build, read_tars, tmp_path):
    one, two = tree(contents("b.txt", "d.txt"), "one"), tree(contents("a.txt", "c.txt"), "two")
    build([one, two], tmp_path / "out")
    assert list(read_tars(tmp_path / "out")) == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_a_key_in_two_roots_stops_the_run_and_names_both_places(tree, build, tmp_path, one_sentence):
    one, two = tree(contents("x/a.txt"), "one"), tree(contents("x/a.txt"), "two")
    with pytest.raises(DuplicateKeyError) as caught:
        build([one, two], tmp_path / "out")
    text = one_sentence(caught.value)
    assert f"{one}/x/a.txt" in text and f"{two}/x/a.txt" in text and "'x/a'" in text
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


def test_a_root_given_twice_is_wrong_use(tree, plan, one_sentence):
    root = tree(contents("a.txt"))
    with pytest.raises(UsageError) as caught:
        plan([root, root])
    assert "twice" in one_sentence(caught.value)


def test_single_files_are_inputs(tree, build, read_tars, tmp_path):
    root = tree(contents("a.txt", "b.txt", "c.txt"))
    build([root / "a.txt", root / "c.txt"], tmp_path / "out")
    assert list(read_tars(tmp_path / "out")) == ["a.txt", "c.txt"]


def test_an_input_that_is_not_there_is_wrong_use(plan, tmp_path, one_sentence):
    with pytest.raises(UsageError) as caught:
        plan(tmp_path / "nothing")
    assert "nothing" in one_sentence(caught.value)


def test_a_folder_without_files_is_wrong_use(plan, tree, one_sentence):
    root = tree({})
    (root / "inner" / "empty").mkdir(parents=True)
    with pytest.raises(UsageError) as caught:
        plan(root)
    assert str(root) in one_sentence(caught.value)


@pytest.mark.parametrize("separator", [b"\n", b"\0"])
def test_a_list_of_paths_is_an_input(tree, build, read_tars, tmp_path, separator, monkeypatch):
    root = tree(contents("x/a.txt", "b.txt", "c.txt"))
    (tmp_path / "list.txt").write_bytes(separator.join([b"x/a.txt", b"./b.txt"]) + separator)
    monkeypatch.chdir(root)
    build(f"@{tmp_path}/list.txt", tmp_path / "out")
    assert list(read_tars(tmp_path / "out")) == ["b.txt", "x/a.txt"]


def test_a_list_of_absolute_paths_is_read_from_standard_input(tree, build, read_tars, tmp_path, monkeypatch):
    root = tree(contents("x/a.txt", "x/b.txt", "y/c.txt"))
    text = b"".join(os.fsencode(root / name) + b"\n" for name in ("x/a.txt", "y/c.txt"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    build("-", tmp_path / "out")
    assert list(read_tars(tmp_path / "out")) == ["x/a.txt", "y/c.txt"]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (b"\n\n", "at least one path"),
        (b"a.txt\nmissing.txt\n", "missing.txt"),
        (b"a.txt\na.txt\n", "twice"),
        (b"a.txt\n./a.txt\n", "twice"),
        (b"x\n", "folders as arguments"),
        (b"a.txt\n/etc/hostname\n", "both"),
    ],
)
def test_a_list_that_cannot_be_meant_is_wrong_use(tree, plan, tmp_path, monkeypatch, lines, named, one_sentence):
    monkeypatch.chdir(tree(contents("x/a.txt", "a.txt")))
    (tmp_path / "list.txt").write_bytes(lines)
    with pytest.raises(UsageError) as caught:
        plan(f"@{tmp_path}/list.txt")
    assert named in one_sentence(caught.value)


def test_the_order_of_a_list_changes_nothing(tree, plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tree(contents("x/a.txt", "a.txt", "b.txt")))
    for name, lines in (("one", "x/a.txt\na.txt\nb.txt\n"), ("two", "b.txt\nx/a.txt\na.txt\n")):
        (tmp_path / name).write_text(lines)
    assert plan(f"@{tmp_path}/one").plan.digest == plan(f"@{tmp_path}/two").plan.digest


def test_a_seed_permutes_samples_whole_and_always_alike(tree, build, read_tars, tmp_path):
    names = [f"{i:03d}.{kind}" for i in range(50) for kind in ("json", "txt")]
    source = tree(contents(*names))
    orders = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(source, tmp_path / folder, seed=seed)
        members = read_tars(tmp_path / folder)
        assert members == {name: name.encode() for name in names}
        order = list(members)
        assert all(order[i].split(".")[0] == order[i + 1].split(".")[0] for i in range(0, 100, 2))
        orders.append(order)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(names)
    moved = sum(left != right for left, right in zip(orders[0], sorted(names), strict=True))
    assert moved > 80


def test_the_order_in_which_files_are_made_changes_nothing(tree, plan):
    names = [f"{i % 7}/{i}.txt" for i in range(60)]
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    first = plan(tree(contents(*names), "one")).plan.digest
    random.Random(seed).shuffle(names)
    assert plan(tree(contents(*names), "two")).plan.digest == first


# What most samples have.


def test_a_stray_file_is_bad_by_itself(tree, build, plan):
    """One README among pairs must not make every pair lack a field."""
    source = tree({**{f"{i}.{kind}": b"{}" for i in range(9) for kind in ("jpg", "json")}, "README.md": b"hello"})
    planned = plan(source)
    assert [field.name for field in planned.survey.fields] == ["jpg", "json"]
    assert any("1 sample: missing-field" in note for note in planned.survey.notes)
    result = build(source, source.parent / "out", max_bad="1")
    assert result.manifest.ledger.num_written == 9
    (line,) = (source.parent / "out" / ".shardtools" / "rejects").read_text().splitlines()
    assert '"where": "README.md"' in line


def test_a_field_few_samples_have_is_optional(tree, build):
    source = tree({**{f"{i}.{kind}": b"{}" for i in range(9) for kind in ("jpg", "json")}, "3.txt": b"hello"})
    result = build(source, source.parent / "out")
    assert result.manifest.ledger.num_written == 9
    assert result.manifest.shards[0].field_sets == {"jpg,json": 8, "jpg,json,txt": 1}


def test_a_sample_of_files_that_are_all_left_out_is_skipped(tree, build, plan):
    source = tree({"a.jpg": b"1", "b.jpg": b"2", "README.md": b"hello"})
    assert plan(source, fields=parse_field_rules("jpg")).survey.skipped == {".md files": 1}
    assert build(source, source.parent / "out", fields=parse_field_rules("jpg")).manifest.ledger.num_written == 2


def test_labels_are_named_and_a_single_one_is_warned_of(tree, plan):
    pets = tree({"pets/cats/a.png": b"1", "pets/dogs/b.png": b"2"})
    notes = plan(pets / "pets", label_from_dir=True).survey.notes
    assert "labels: 0 cats, 1 dogs" in notes
    assert any("every sample has the same label" in note for note in plan(pets, label_from_dir=True).survey.notes)


def test_a_reading_of_thousands_of_fields_is_told_in_one_line(tree, plan, one_sentence):
    source = tree({f"v1.{i}.{kind}": b"" for i in range(300) for kind in ("txt", "json")})
    with pytest.raises(UsageError) as caught:
        plan(source)
    assert len(one_sentence(caught.value)) < 600


def test_only_files_without_an_extension_draw_the_note_on_them(tree, plan):
    def notes(files: dict[str, bytes], name: str) -> list[str]:
        return [note for note in plan(tree(files, name)).survey.notes if "without an extension" in note]

    assert notes({"a.bin": b"1", "b.bin": b"2"}, "named") == []
    assert notes({"a.bin": b"1", "b": b"2", "c": b"3"}, "bare") == [
        "files without an extension are stored as the field 'bin': 2 samples",
    ]
