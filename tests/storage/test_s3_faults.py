"""Stops a fault of the network or the store from ending in wrong bytes, half an object, a traceback or a secret in a message.

Every fault meets every request of every operation, against a real store.
"""

import hashlib
import io
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import pytest
from fault_proxy import LASTING, PASSING, Fault, answered, flipped_on_the_way_back, flipped_on_the_way_there, lost_answer, refusal
from faulty_place import FaultyPlace

from shardtools.errors import StorageError
from shardtools.storage.s3 import S3, _attempts, _reading

SMALL = random.Random(1).randbytes(1_000)
BIG = random.Random(2).randbytes(6_000_000)
BEFORE = {"small": SMALL, "big": BIG, "folder/a": b"1", "folder/b": b"2"}


@dataclass(frozen=True)
class Operation:
    """``call`` is given the storage and an empty folder; afterwards there are ``BEFORE``, less ``gone``, and ``new``."""

    call: Callable[[S3, Path], object]
    gives: object = None
    new: dict[str, bytes] = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    @property
    def after(self) -> dict[str, bytes]:
        return {name: data for name, data in BEFORE.items() if name not in self.gone} | self.new


def write(storage: S3, name: str, data: bytes) -> None:
    writer = storage.writer(name)
    try:
        for begin in range(0, len(data), 500_000):
            writer.write(data[begin : begin + 500_000])
        writer.finish()
    except BaseException:
        writer.abort()
        raise


def fetched(storage: S3, name: str, folder: Path) -> bytes:
    path = folder / "fetched"
    with suppress(FileNotFoundError):
        path.unlink()
    storage.fetch(name, str(path))
    return path.read_bytes()


def read_part(storage: S3) -> bytes:
    buffer = bytearray(2_500_000)
    storage.read_into("big", memoryview(buffer), 50_000)
    return bytes(buffer)


def read_file(storage: S3) -> bytes:
    with storage.open("big") as file:
        head = file.read(10)
        file.seek(5_000_000)
        return head + io.BufferedReader(file).read()  # type: ignore[type-var]


OPERATIONS = {
    "create": Operation(lambda s, _: s.create("new", SMALL), True, {"new": SMALL}),
    "create what is there": Operation(lambda s, _: s.create("small", b"other"), False),
    "put": Operation(lambda s, _: s.put("new", SMALL), None, {"new": SMALL}),
    "put over": Operation(lambda s, _: s.put("small", BIG), None, {"small": BIG}),
    "get": Operation(lambda s, _: s.get("small"), SMALL),
    "num_bytes": Operation(lambda s, _: s.num_bytes("big"), 6_000_000),
    "sha256": Operation(lambda s, _: s.sha256("big"), hashlib.sha256(BIG).hexdigest()),
    "names": Operation(lambda s, _: sorted(s.names("folder")), ["folder/a", "folder/b"]),
    "write": Operation(lambda s, _: write(s, "new/x", BIG), None, {"new/x": BIG}),
    "write over": Operation(lambda s, _: write(s, "small", BIG), None, {"small": BIG}),
    "move": Operation(lambda s, _: s.move("big", "new/y"), True, {"new/y": BIG}, ("big",)),
    "delete": Operation(lambda s, _: s.delete("folder"), None, {}, ("folder/a", "folder/b")),
    "fetch": Operation(lambda s, folder: fetched(s, "big", folder), BIG),
    "read_into": Operation(lambda s, _: read_part(s), BIG[50_000:2_550_000]),
    "wholes": Operation(lambda s, _: [whole and whole.data for whole in s.wholes([("small", 1_000), ("no", 1)])], [SMALL, None]),
    "open": Operation(lambda s, _: read_file(s), BIG[:10] + BIG[5_000_000:]),
    "discard_unfinished": Operation(lambda s, _: s.discard_unfinished()),
}
FAST = ("create", "put", "get", "names", "write", "move", "delete", "fetch")
"""Met by the faults that find most; ``test_every_fault_meets_every_request`` has them all."""
READS_AHEAD = {"open"}
CANNOT_BE_TOLD = {"num_bytes": {"no bucket"}}
"""HEAD answers 404 for an object and for a bucket that is missing."""


def check_passing(place: FaultyPlace, folder: Path, name: str, faults: Iterable[str]) -> None:
    operation = OPERATIONS[name]
    place.lay(BEFORE)
    requests = place.meets()
    assert operation.call(place.storage, folder) == operation.gives
    assert place.objects() == operation.after, "without a fault"
    for fault, position in product(faults, range(len(requests.seen))):
        place.lay(BEFORE)
        place.meets(*[None] * position, PASSING[fault])
        assert operation.call(place.storage, folder) == operation.gives, (fault, position, requests.seen)
        place.clear()
        assert place.objects() == operation.after, (fault, position, requests.seen)
    place.storage.discard_unfinished()
    assert place.uploads() == []


def check_lasting(place: FaultyPlace, folder: Path, name: str, faults: Iterable[str]) -> Iterator[str]:
    """What is said each time."""
    operation = OPERATIONS[name]
    place.lay(BEFORE)
    requests = place.meets()
    operation.call(place.storage, folder)
    for fault, position in product(faults, range(len(requests.seen))):
        lasting, said = LASTING[fault]
        place.lay(BEFORE)
        place.meets(*[None] * position, *[lasting] * 1000)
        try:
            gives, told = operation.call(place.storage, folder), None
        except StorageError as error:
            gives, told = None, str(error)
        place.clear()
        if told is not None:
            yield told
            assert re.search(said, told), (fault, position, requests.seen)
        else:  # what was read ahead may turn out not to be needed
            assert name in READS_AHEAD and gives == operation.gives, (fault, position, requests.seen)
        assert is_old_or_new(place.objects(), operation), (fault, position, requests.seen)
    place.storage.discard_unfinished()
    assert place.uploads() == []


@pytest.mark.parametrize("name", FAST)
def test_a_fault_that_passes_changes_nothing(place, tmp_path, name):
    check_passing(place, tmp_path, name, ("503 SlowDown", "lost answer", "cut body", "200 with an error"))


@pytest.mark.parametrize("name", FAST)
def test_a_fault_that_stays_is_one_sentence_and_leaves_the_old_or_the_new(place, tmp_path, name, one_sentence):
    for told in check_lasting(place, tmp_path, name, ("busy for ever", "denied")):
        assert told == one_sentence(StorageError(told))
        assert place.storage.uri in told and "attempt" in told
        assert not [secret for secret in place.secrets if secret in told]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_fault_meets_every_request(place, tmp_path, name, one_sentence):
    check_passing(place, tmp_path, name, PASSING.keys() - CANNOT_BE_TOLD.get(name, set()))
    for told in check_lasting(place, tmp_path, name, LASTING.keys() - CANNOT_BE_TOLD.get(name, set())):
        assert told == one_sentence(StorageError(told))
        assert place.storage.uri in told and "attempt" in told
        assert not [secret for secret in place.secrets if secret in told]


def is_old_or_new(found: dict[str, bytes], operation: Operation) -> bool:
    """Of every object; of several that change, any may have changed."""
    either = [{data for data in (BEFORE.get(name), operation.after.get(name)) if data is not None} for name in found]
    return all(data in allowed for data, allowed in zip(found.values(), either, strict=True)) and not (
        BEFORE.keys() & operation.after.keys()
    ).difference(found)


@pytest.mark.parametrize("fault", ["shorter than announced", "longer than announced"])
def test_a_wrong_length_is_not_taken_for_another_object(place, fault):
    """A source's sample would be set aside for it. Each of the two ways to ask meets the fault."""
    place.lay({"small": SMALL})
    schedule = place.meets(*[PASSING[fault]] * 2, of="GetObject")
    assert [whole and whole.data for whole in place.storage.wholes([("small", 1_000)])] == [SMALL]
    assert schedule.seen.count("GetObject") == 3
    (other,) = place.storage.wholes([("small", 999)])
    assert other is not None and (other.data, other.num_bytes) == (b"", 1_000)


@pytest.mark.parametrize("name", ["put", "put over", "write", "create"])
def test_a_byte_flipped_on_the_way_there_is_sent_again(place, tmp_path, name):
    operation = OPERATIONS[name]
    place.lay(BEFORE)
    schedule = place.meets(flipped_on_the_way_there, of="PutObject UploadPart")
    assert operation.call(place.storage, tmp_path) == operation.gives
    assert place.objects() == operation.after
    assert len([seen for seen in schedule.seen if seen in ("PutObject", "UploadPart")]) >= 2


@pytest.mark.parametrize("name", ["get", "wholes"])
def test_a_byte_flipped_in_a_whole_object_is_read_again(place, tmp_path, name):
    place.lay(BEFORE)
    place.meets(flipped_on_the_way_back, of="GetObject")
    assert OPERATIONS[name].call(place.storage, tmp_path) == OPERATIONS[name].gives


@pytest.mark.parametrize("position", range(3))
def test_a_byte_flipped_in_a_range_is_found_by_the_checksum_of_the_whole(place, tmp_path, position, one_sentence):
    write(place.storage, "many-parts", BIG)
    for call in (lambda: place.storage.fetch("many-parts", str(tmp_path / "x")), lambda: place.storage.sha256("many-parts")):
        place.meets(*[None] * position, flipped_on_the_way_back, of="GetObject")
        with pytest.raises(StorageError) as caught:
            call()
        assert "other bytes came than were stored" in one_sentence(caught.value)


def test_a_create_whose_answer_was_lost_is_a_success_only_for_its_own_bytes(place):
    place.meets(lost_answer)
    assert place.storage.create("mine", b"1") is True
    place.lay({"theirs": b"2"})
    place.meets(refusal(503, "SlowDown"))
    assert place.storage.create("theirs", b"1") is False
    assert place.objects() == {"theirs": b"2"}


@pytest.fixture
def barely_ahead(monkeypatch):
    """Of an open file hardly more is asked for than is read."""
    monkeypatch.setattr(_reading, "_AHEAD", 1)
    monkeypatch.setattr(_reading, "RANGE_BYTES", 500_000)
    monkeypatch.setattr(_reading, "_FIRST_BYTES", 500_000)


@pytest.mark.usefixtures("barely_ahead")
def test_a_file_can_be_read_on_after_an_error(place):
    """An iterator that has failed ends: read on, the object would look shorter than it is."""
    place.lay(BEFORE)
    with place.storage.open("big") as file:
        assert file.read(10) == BIG[:10]
        place.meets(*[refusal(403, "AccessDenied")] * 100)
        read = b""
        with pytest.raises(StorageError):
            while piece := file.read(100_000):
                read += piece
        place.clear()
        while piece := file.read(100_000):
            read += piece
        assert BIG[:10] + read == BIG


@pytest.mark.usefixtures("barely_ahead")
def test_an_object_replaced_while_it_is_read_is_never_a_mix(place, one_sentence):
    place.lay(BEFORE)
    with place.storage.open("big") as file:
        assert file.read(10) == BIG[:10]
        place.lay({"big": bytes(reversed(BIG))})
        read = BIG[:10]
        with pytest.raises(StorageError) as caught:
            while piece := file.read(100_000):
                read += piece
    assert BIG.startswith(read) and "replaced while it was read" in one_sentence(caught.value)


def test_the_server_is_waited_for_as_long_as_it_asks(place, monkeypatch):
    place.lay({"small": SMALL})
    assert place.storage.get("small") == SMALL
    waits: list[float] = []
    monkeypatch.setattr("threading.Event.wait", lambda _, seconds=None: waits.append(seconds))
    monkeypatch.setattr(_attempts, "PATIENCE", _attempts.Patience(first_wait=0.1, longest_wait=20.0))
    place.meets(refusal(503, "SlowDown", retry_after="7"), refusal(503, "SlowDown", retry_after="900"), refusal(503, "SlowDown"))
    assert place.storage.get("small") == SMALL
    assert waits[:2] == [7.0, 20.0] and waits[2] < 1.0


@pytest.mark.parametrize("header", ["last-modified", "etag"])
def test_a_header_that_makes_no_sense_is_asked_for_again(place, header):
    place.lay({"small": SMALL})

    def spoil(connection, request):
        said = answered(connection, request)
        spoilt = {name: value for name, value in said.headers.items() if name != header}
        connection.send(replace(said, headers=spoilt | ({header: "yesterday"} if header == "last-modified" else {})))

    place.meets(spoil, spoil)
    assert place.storage.num_bytes("small") == 1000
    place.meets(spoil)
    assert place.storage.get("small") == SMALL


FAULT_OF_NO_KIND: Fault = refusal(400, "SomethingNew", "Authorization=AWS4-HMAC-SHA256 secretAccessKey=abc token: xyz\nsecond line")


def test_what_a_server_says_is_one_line_without_what_looks_like_a_secret(place, one_sentence):
    place.meets(FAULT_OF_NO_KIND)
    with pytest.raises(StorageError) as caught:
        place.storage.get("small")
    told = one_sentence(caught.value)
    assert "SomethingNew" in told and not [secret for secret in ("AWS4", "abc", "xyz") if secret in told]
