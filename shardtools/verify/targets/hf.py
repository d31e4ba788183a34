"""What Hugging Face ``datasets`` makes of tars. Source: datasets 5.2.0, packaged_modules/webdataset, utils/file_utils.py."""

import re
from dataclasses import dataclass, field

from shardtools.datasets import Shard
from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import At, Complaints, Rule
from shardtools.verify.targets._hf_values import OPAQUE, UNPACKED_EXTENSIONS, decoded, is_object_array, kind_of_field
from shardtools.verify.targets._members import Runs, Seen, is_hidden, split_at_first_dot
from shardtools.verify.targets._schema import ANY, Type, UnfitError, faults, merged, type_of

UNDERSCORES = Rule("target-drops", "whose file name begins with __, which it passes over")
UPPER = Rule("target-drops", "with capitals in the field: it keeps them, and finds none when asked by lower-case names")
RESERVED = Rule("target-rejects", "named like its own fields __key__ or __url__, where it stops or takes the value for its own")
FIRST_FIVE = Rule(
    "target-rejects", "among the first five of their tar that have other fields than the first: it does not open the dataset", "sample"
)
TYPES = Rule("target-rejects", "among the first five whose values have no type in common: it does not open the dataset", "sample")
LATE_FIELD = Rule("target-drops", "of a field that none of the first five samples has, which it drops")
LATE_NAME = Rule("target-drops", "of JSON with names that none of the first five samples has, which it drops")
CHANGED = Rule("target-changes", "of JSON whose values it turns into the type of the first five: 1.5 becomes 1, numbers become text")
UNFIT = Rule("target-rejects", "of JSON whose values do not fit the type of the first five (which null alone settles too), where it stops")
UNDECODABLE = Rule("target-rejects", "that it cannot decode by their extension, where it stops")
PICKLED = Rule("target-rejects", "that hold pickled arrays, where it stops")
UNPACKED = Rule("target-changes", "that are compressed, which it unpacks")
SPLITS = Rule(
    "target-rejects",
    "whose first five samples have other fields or types than those of the first split: it reads all by the types of one",
    "split",
)
BESIDE = Rule("target-rejects", "beside the shards, named like one with more behind it, which it takes for a tar", "file")

_MAX_SPLITS = 1000


@dataclass
class _Split:
    """Shards that differ by a number only. The types are those of the first of them."""

    shard: str
    types: dict[str, Type] = field(default_factory=dict)
    num_samples: int = 0
    is_settled: bool = False


class HuggingFace:
    """Its rules. Memory: the types of each split, and one sample's JSON."""

    def __init__(self) -> None:
        self.complaints = Complaints("hf")
        self._runs = Runs()
        self._splits: dict[str, _Split] = {}
        self._split = _Split("")
        self._sample: dict[str, Seen] = {}
        self._num_without = 0

    def begin(self, shard: Shard, uri: str) -> None:
        name = re.sub(r"[0-9]+", "#", shard.name) if len(self._splits) < _MAX_SPLITS else ""
        self._split = self._splits.setdefault(name, _Split(shard.name))

    def see(self, seen: Seen) -> None:
        reading = (seen.key, seen.field) if seen.is_plain else self._read(seen)
        if reading is None:
            return
        if reading[0] != self._runs.key:
            self._end_sample()
        if self._runs.take(*reading):
            self._sample[reading[1]] = seen
        else:
            self.complaints.add(_lint.FIELD_TWICE, seen.at)

    def end(self, shard: Shard) -> None:
        self._end_sample()
        if not self._runs.end_shard() and self._split.shard == shard.name:
            self.complaints.add(_lint.EMPTY, At(shard.name))
        self._split.is_settled = self._split.num_samples > 0

    def remarks(self) -> tuple[str, ...]:
        splits = list(self._splits.values())
        for split in splits[1:]:
            if split.types != splits[0].types:
                self.complaints.add(SPLITS, At(split.shard))
        if not self._num_without:
            return ()
        return (f"hf fills in None where a sample lacks a field that the first five have, here {self._num_without:,} times.",)

    def _read(self, seen: Seen) -> tuple[str, str] | None:
        if _lint.is_passed_over(seen, self.complaints):
            return None
        if is_hidden(seen.name) or seen.name[seen.name.rfind("/") + 1 :].startswith("__"):
            self.complaints.add(_lint.HIDDEN_DROPPED if is_hidden(seen.name) else UNDERSCORES, seen.at)
            return None
        reading = split_at_first_dot(seen.name)
        if reading is None:
            self.complaints.add(_lint.NO_DOT, seen.at)
            return None
        if reading[1] in ("__key__", "__url__"):
            self.complaints.add(RESERVED, seen.at)
        if reading[1] != reading[1].lower():
            self.complaints.add(UPPER, seen.at)
        if not seen.is_utf8:
            self.complaints.add(_lint.BAD_UTF8, seen.at)
        return reading

    def _end_sample(self) -> None:
        sample, self._sample = self._sample, {}
        if not sample:
            return
        split = self._split
        if not split.is_settled:
            self._settle(split, sample)
        else:
            self._compare(split, sample)

    def _settle(self, split: _Split, sample: dict[str, Seen]) -> None:
        """One of the first five."""
        first = next(iter(sample.values()))
        if split.num_samples and sample.keys() != split.types.keys():
            self.complaints.add(FIRST_FIVE, first.at)
        for name, seen in sample.items():
            try:
                value = self._decoded(name, seen)
                kind = kind_of_field(name) if value is OPAQUE else type_of(value)
                split.types[name] = merged(split.types.get(name, "null"), kind)
            except UnfitError:
                split.types[name] = ANY
                self.complaints.add(TYPES, seen.at)
        split.num_samples += 1
        split.is_settled = split.num_samples == 5

    def _compare(self, split: _Split, sample: dict[str, Seen]) -> None:
        self._num_without += len(split.types.keys() - sample.keys())
        for name, seen in sample.items():
            if name not in split.types:
                self.complaints.add(LATE_FIELD, seen.at)
                continue
            value = self._decoded(name, seen)
            found = set() if value is OPAQUE else {*faults(split.types[name], value)}
            for fault, rule in (("rejects", UNFIT), ("changes", CHANGED), ("drops", LATE_NAME)):
                if fault in found:
                    self.complaints.add(rule, seen.at)

    def _decoded(self, name: str, seen: Seen) -> object:
        """The value where its type is of interest, else OPAQUE; complains of what cannot be decoded, which is null then."""
        extension = name.rpartition(".")[2].lower()
        if extension in UNPACKED_EXTENSIONS:
            self.complaints.add(UNPACKED, seen.at)
            return OPAQUE
        if extension == "npy" and is_object_array(seen.value):
            self.complaints.add(PICKLED, seen.at)
        try:
            return decoded(extension, seen.value)
        except (ValueError, RecursionError):
            self.complaints.add(UNDECODABLE, seen.at)
            return None
