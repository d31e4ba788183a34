"""Tar shards damaged under a manifest that agrees with them; stops a verify that trusts digests instead of parsing.

The damages are those that readers pass over in silence.
"""

import random
import tarfile

import pytest

from shardtools.verify import VerifyOptions, verify

NAME = "train-000001.tar"
BLOCK = 512


@pytest.fixture
def damage(wds, forge, findings):
    """Replace a shard's bytes by what ``change`` makes of them, and say what verify finds."""

    def call(change):
        forge(wds, NAME, bytes(change(bytearray((wds / NAME).read_bytes()))))
        return [found for found in findings(wds) if found.shard == NAME]

    return call


def flip(at):
    def change(data):
        data[at] ^= 1
        return data

    return change


def only(found, kind):
    # A forged shard may be longer than its recipe allows.
    found = [finding for finding in found if finding.shard != "shardtools.manifest"]
    assert {finding.kind for finding in found} == {kind}, found
    return found[0]


def test_a_flipped_bit_in_a_header(damage):
    assert only(damage(flip(2 * BLOCK + 7)), "damaged-shard").offset == 2 * BLOCK


def test_a_header_of_zeros(damage):
    """Readers take it for the end of the file and lose the rest of the shard."""

    def change(data):
        data[4 * BLOCK : 5 * BLOCK] = bytes(BLOCK)
        return data

    assert only(damage(change), "damaged-shard").offset > 4 * BLOCK


def test_padding_that_is_not_zero(damage):
    only(damage(flip(2 * BLOCK - 1)), "damaged-shard")


@pytest.mark.parametrize("at", [0, 100, BLOCK, 8 * BLOCK, 8 * BLOCK + 60, 9 * BLOCK + 3], ids=lambda at: f"at {at}")
def test_a_cut_at_any_kind_of_boundary(damage, at):
    only(damage(lambda data: data[:at]), "damaged-shard")


def test_an_end_of_one_zero_block(damage):
    only(damage(lambda data: data[: 36 * BLOCK + BLOCK]), "damaged-shard")


def test_two_tars_in_one_file(damage):
    found = damage(lambda data: data + data)
    assert found[0].kind == "damaged-shard"
    assert {finding.kind for finding in found[1:]} == {"duplicate-key"}, "reading goes on behind the end of the first"


def test_garbage_after_the_end(damage):
    only(damage(lambda data: data + b"x" * BLOCK), "damaged-shard")


def test_more_zeros_after_the_end_than_this_package_writes(damage):
    only(damage(lambda data: data + bytes(10240)), "not-canonical")


def test_an_html_page(damage):
    only(damage(lambda _: b"<html>" + b" " * 20000), "damaged-shard")


def test_only_zeros(damage):
    kinds = {finding.kind for finding in damage(lambda _: bytes(10240))}
    assert {"wrong-count", "wrong-field-sets"} <= kinds


def test_a_size_of_a_terabyte_allocates_nothing(damage):
    def change(data):
        data[124:136] = b"\x80" + (1 << 40).to_bytes(11, "big")
        checksum = sum(data[:148]) + 8 * 32 + sum(data[156:512])
        data[148:156] = b"%06o\0 " % checksum
        return data

    assert "1099511627776" in only(damage(change), "damaged-shard").detail


def test_a_negative_size_ends(damage):
    def change(data):
        data[124:136] = b"-0000000777\0"
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
        return data

    only(damage(change), "damaged-shard")


@pytest.fixture
def rewrite(wds, forge, findings, members_of, tar_of):
    """Write the shard's members, changed, as another tar; say what verify finds that is no mere difference in counts."""

    def call(change, **options):
        forge(wds, NAME, tar_of(change(members_of(wds / NAME)), **options))
        secondary = ("wrong-count", "wrong-field-sets", "wrong-offsets")
        return [found for found in findings(wds) if found.kind not in secondary]

    return call


def test_the_same_members_again_are_sound(rewrite):
    """The independent writer makes the same bytes, so what the other tests find comes of what they change."""
    assert rewrite(lambda members: members) == []


def test_other_times(rewrite):
    only(rewrite(lambda members: members, mtime=1), "not-canonical")


def test_extension_headers(rewrite):
    only(rewrite(lambda members: members, tar_format=tarfile.PAX_FORMAT, mtime=0.5), "not-canonical")


def renamed(i, name):
    return lambda members: [(name, data) if j == i else (old, data) for j, (old, data) in enumerate(members)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("k009.JSON", "illegal-field"),
        ("k009.__key__", "illegal-field"),
        ("k009", "no-field"),
        ("a b.json", "illegal-key"),
        ("_x.json", "illegal-key"),
        ("x" * 81 + ".json", "illegal-key"),
        ("../k.json", "unsafe-name"),
        ("/etc/k.json", "unsafe-name"),
        ("a/../../k.json", "unsafe-name"),
    ],
)
def test_names_no_reader_or_no_file_system_should_see(rewrite, name, kind):
    assert kind in {finding.kind for finding in rewrite(renamed(0, name))}


def test_a_field_twice(rewrite):
    assert only(rewrite(lambda members: [members[0], *members]), "field-twice").key == "k009"


def test_fields_out_of_order(rewrite):
    only(rewrite(lambda members: [members[1], members[0], *members[2:]]), "not-canonical")


def test_a_sample_in_two_parts(rewrite):
    """Readers take the parts for two samples."""
    found = only(rewrite(lambda members: [members[0], *members[2:], members[1]]), "split-sample")
    assert found.key == "k009"
    assert "at byte 0 " in found.detail


def test_a_key_twice_in_one_shard(rewrite):
    assert only(rewrite(lambda members: [*members, *members[:2]]), "duplicate-key").key == "k009"


def test_a_key_twice_in_two_shards_names_both_places(rewrite):
    found = only(rewrite(lambda members: [*members, ("k000.json", b"{}"), ("k000.txt", b"")]), "duplicate-key")
    assert (found.key, found.shard, found.offset) == ("k000", NAME, 36 * BLOCK)
    assert found.detail == f"expected every key once, got it in train-000000.tar at byte 0 and in {NAME} at byte {36 * BLOCK}"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_what_is_no_file(rewrite, kind):
    link = tarfile.TarInfo("k009.link")
    link.type, link.linkname, link.mode = kind, "../../etc/passwd", 0o444
    only(rewrite(lambda members: [*members, link]), "not-a-file")


def test_a_sample_less(wds, forge, kinds, members_of, tar_of):
    forge(wds, NAME, tar_of(members_of(wds / NAME)[2:]))
    assert kinds(wds) == {"wrong-count": 1, "wrong-field-sets": 1}


def test_a_member_less(wds, forge, kinds, members_of, tar_of):
    forge(wds, NAME, tar_of(members_of(wds / NAME)[:-1]))
    assert kinds(wds) == {"wrong-field-sets": 1, "wrong-offsets": 1}


def test_many_findings_of_one_kind_are_listed_up_to_a_limit(wds, forge, members_of, tar_of):
    forge(wds, NAME, tar_of(members_of(wds / NAME), mtime=1))
    verdict = verify(str(wds), VerifyOptions(workers=1, max_findings=3))
    assert len(verdict.findings) == 4
    assert "15 more" in verdict.findings[-1].detail


def test_bytes_at_random_never_break_verify(wds, forge):
    seed = 5
    numbers = random.Random(seed)
    sound = (wds / NAME).read_bytes()
    for _ in range(150):
        data = bytearray(sound)
        for _ in range(numbers.randrange(1, 4)):
            data[numbers.randrange(BLOCK)] = numbers.choice(b"\0\x01 0178-x/.\x80\xff")
        # A right checksum lets the damage past the first gate.
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
        if bytes(data) != sound:
            forge(wds, NAME, bytes(data))
            assert verify(str(wds), VerifyOptions(workers=1)).exit_code == 1, f"seed {seed}: {bytes(data[:512])!r}"


def test_samples_around_damage_are_still_read(wds, forge):
    """One bad header costs its own sample, not the rest of the shard."""
    data = bytearray((wds / NAME).read_bytes())
    data[6 * BLOCK + 7] ^= 1
    forge(wds, NAME, bytes(data))
    verdict = verify(str(wds), VerifyOptions(workers=1))
    assert [finding.kind for finding in verdict.findings if finding.shard == NAME] == ["damaged-shard"]
    assert verdict.num_samples == 40
