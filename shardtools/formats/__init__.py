"""Shard formats: how samples become the bytes of one shard file, and how such a file is read strictly."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from shardtools.formats import _tar
from shardtools.sample import Batch, Field, RejectSink
from shardtools.storage import ObjectWriter

if TYPE_CHECKING:  # packing to WDS does without numpy
    from mmap import mmap

    import numpy as np
    import numpy.typing as npt

TarMember = _tar.Member
tar_entries = _tar.entries
"""The entries of an archive as they are, for those who judge what other readers make of them."""
MDS_INDEX_NAME = "index.json"
MDS_CONFIG_KEYS = ("column_encodings", "column_names", "column_sizes", "compression", "format", "hashes", "size_limit", "version")
"""What the header of an MDS shard says, and its entry in the index repeats."""
MAX_MDS_BYTES = 2**32 - 1
"""The most one MDS shard can hold: its offsets are u32."""
IMAGE_MAGIC = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
"""What the bytes of an image encoding begin with."""
IMAGE_EXTENSIONS = "avif bmp cr2 dng exr gif heic heif jp2 jpeg jpg pgm png ppm qoi svg tga tif tiff webp"
"""Of files that are images, whether or not anything here can decode them, with a blank between two."""
FILE_ENCODINGS = {"jpg": "jpeg", "jpeg": "jpeg", "png": "png", "json": "json", "txt": "str", "cls": "int"}
"""The encoding of files by their extension, in MDS's words; others are ``bytes``."""
MEMBER_ENCODINGS = {**FILE_ENCODINGS, "jsn": "json", "text": "str", "index": "int", "inx": "int", "id": "int"}
"""The encoding WebDataset's readers see in a tar member by its extension; others are ``bytes``."""


def index_place(split: str) -> str:
    """Where the index of MDS lies below a dataset's folder: in the folder of the split, where there are any."""
    return f"{split}/{MDS_INDEX_NAME}" if split else MDS_INDEX_NAME


def joined_names(names: Sequence[str]) -> str:
    """Field names as one text that ``split_names`` takes apart again: a comma in a name is ``%2C``, a percent sign ``%25``."""
    joined = ",".join(names)
    if "%" not in joined and joined.count(",") < max(len(names), 1):
        return joined
    return ",".join(name.replace("%", "%25").replace(",", "%2C") for name in names)


def split_names(joined: str) -> list[str]:
    """The field names that were joined."""
    return [name.replace("%2C", ",").replace("%25", "%") for name in joined.split(",")]


@dataclass(slots=True)
class Chunk:
    """Encoded samples, in order. ``pieces[ends[i - 1] : ends[i]]`` joined are the stored bytes of sample ``i``."""

    keys: list[bytes]
    pieces: list[bytes]
    ends: Sequence[int]
    costs: Sequence[int]
    """Bytes by which each sample lengthens its shard file."""
    field_sets: Sequence[str]
    """The field names each sample has, by ``joined_names``."""
    kept: Sequence[int] | None = None
    """Which samples of the batch these are, where some were rejected: a key alone does not tell. None: all of them."""

    def index_in_batch(self, i: int) -> int:
        """Where sample ``i`` stands in the batch it was encoded from."""
        return i if self.kept is None else self.kept[i]


@dataclass(frozen=True)
class ShardFacts:
    """What one finished shard file is."""

    num_bytes: int
    sha256: str
    num_samples: int
    offsets: "array[int]" = field(compare=False)
    """u64 [num_samples + 1]: where each sample begins in the (uncompressed) shard; the last is the end of the data."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the format's index needs beyond that, as plain JSON values."""


class Encoder(Protocol):
    """Turns batches into stored bytes, checking every value before it is written."""

    budget_bytes: int
    """How far costs may add up in one shard under the shard size limit."""
    max_budget_bytes: int
    """How far costs may add up in one shard at all; a sample above it is rejected."""

    def encode(self, batch: Batch, reject: RejectSink) -> Chunk:
        """The samples of ``batch`` that are sound; each other one goes to ``reject``."""

    def planned_cost(self, key_bytes: int, names: Sequence[str], num_bytes: Sequence[int]) -> int:
        """The cost of a sample from the length of its key and the length of each field it has."""


class ShardFile(Protocol):
    """One shard being written."""

    def append(self, pieces: Sequence[bytes], costs: Sequence[int]) -> None:
        """Add the pieces of ``len(costs)`` samples."""

    def finish(self) -> ShardFacts:
        """Write what remains, make the file durable, and tell what it is."""

    def abort(self) -> None:
        """Leave nothing behind."""


class StoredSample(NamedTuple):
    """One sample as it lies in a shard: its key, where it begins, its values undecoded."""

    key: str
    offset: int
    values: dict[str, memoryview]


class Columns(NamedTuple):
    """Neighbouring samples of a shard without a fault, by columns. Values are stretches of the (uncompressed) shard."""

    keys: list[bytes]
    """[n]; where keys are not stored, the row's number."""
    offsets: list[int]
    """[n]: where each sample begins."""
    field_sets: list[str]
    """[n]: the names of each sample's fields, by ``joined_names``."""
    firsts: list[int]
    """[n + 1]: the values of sample ``i`` are ``firsts[i]`` up to ``firsts[i + 1]``, in the order of its field set."""
    begins: "npt.NDArray[np.int64]"
    """[v]: where each value begins."""
    ends: "npt.NDArray[np.int64]"
    key_value: int | None = None
    """Which value of each sample is its key; None where the key is no value."""
    is_dense: bool = False
    """Every sample has the same fields, and its values follow each other without a gap."""


class Rows(Protocol):
    """The samples of one shard by their place in it."""

    def __len__(self) -> int: ...

    def row(self, i: int) -> dict[str, Any]:
        """``__key__`` (str; the row's number where keys are not stored) and the fields' stored values. Raises DamagedShardError."""


class UnprovenError(Exception):
    """The quick look at a shard cannot say that it is sound: the slow one has to say what is wrong, if anything is."""


class Fault(NamedTuple):
    """One way in which a shard is not as it should be."""

    kind: str
    """A short word to count by, such as ``undecodable-value``."""
    offset: int
    """The byte of the (uncompressed) shard where it shows."""
    key: str | None
    detail: str
    """What was expected and what came."""


@dataclass
class Audit:
    """One strict look at a shard: what is demanded, and what came out."""

    on_fault: Callable[[Fault], None]
    own: bool = False
    """The shard is demanded to be byte for byte what this package writes, not just sound."""
    config: Mapping[str, Any] | None = None
    """What the format's index says of the shard, where there is one."""
    looks_at_values: bool = True
    """Values are checked against their encodings."""
    first_row: int = 0
    """The number of the first sample, of a format that numbers those without keys: these may be some rows of a longer shard."""
    data_end: int = 0
    """Set by the format: where the last sample ends."""
    is_whole: bool = True
    """Set to False by the format where damage kept it from reading every sample."""
    unchecked: set[str] = field(default_factory=set)
    """Filled by the format: fields whose values it cannot or must not decode."""


class ShardFormat(Protocol):
    """A frozen dataclass whose fields are the format's options."""

    suffix: ClassVar[str]
    default_shard_bytes: ClassVar[int]
    max_value_bytes: ClassVar[int]
    """The most one value may take."""
    index_name: ClassVar[str | None]
    """The file readers need beside the shards, None where shards stand alone. Where there are splits it lies in the folder of each."""

    @property
    def key_name(self) -> str | None:
        """The field that holds the key, None where keys are no field."""

    @property
    def stored_compression(self) -> str | None:
        """How the stored file is compressed, None where it is not."""

    def shard_name(self, number: int, width: int, split: str = "") -> str:
        """The name of shard ``number``, of a split where there are any; ``width`` is the least number of digits the format may add to."""

    def encoder(self, fields: Sequence[Field], shard_bytes: int | None) -> Encoder:
        """An encoder for these fields. Raises UsageError for fields the format cannot hold."""

    def shard_file(self, fields: Sequence[Field], shard_bytes: int | None, output: ObjectWriter) -> ShardFile:
        """Begin a shard."""

    def index(self, fields: Sequence[Field], shard_bytes: int | None, shards: Sequence[tuple[str, ShardFacts]]) -> bytes:
        """The bytes of ``index_name``, for formats that have one; shards are named as they lie beside it."""

    def stored_samples(self, shard: memoryview) -> Iterator[StoredSample]:
        """Parse a whole (uncompressed) shard strictly. Raises DamagedShardError at the first byte that breaks the format."""

    def rows(self, shard: "mmap | bytes", offsets: Sequence[int] | None, views: bool) -> Rows:
        """The samples of a whole (uncompressed) shard, each read when it is asked for.

        ``offsets`` is where each begins, and the end of the last; None: as the shard itself tells, which for some formats takes
        a look at all of it. ``views``: values are memoryviews of the shard in place of bytes, which spares a copy. Raises
        DamagedShardError.
        """

    def audit(self, shard: memoryview, audit: Audit) -> Iterator[StoredSample]:
        """The samples of a shard that may be damaged in any way; every fault is reported, and reading goes on where it can.

        Allocates nothing by sizes the shard declares and runs nothing it holds.
        """

    def columns(self, shard: memoryview, audit: Audit) -> Iterator[Columns]:
        """What ``audit`` finds in a shard without any fault, many times as fast. Reports nothing.

        Raises UnprovenError at anything out of the ordinary, be it a fault or only rare: what was yielded before counts for
        nothing then.
        """

    def decode(self, field: Field, data: bytes) -> Any:
        """The Python value of stored bytes, never unpickled. Raises ValueError where they are none of the field's encoding."""
