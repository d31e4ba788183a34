"""What went wrong with a sample, or in a function of the user's that was given it: in one sentence that names both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.spec import Layout, Workload
from shardtools.bench.user_faults import SampleError, described, place_of, said_of
from shardtools.formats import IMAGE_MAGIC

_MAGIC = tuple(IMAGE_MAGIC.values())


@dataclass(frozen=True)
class Stage:
    """What is done to a sample, for the sentence that says that it failed."""

    what: str
    """``--transform pkg.mod:function``, or what is built in."""
    is_own: bool
    """The user's function."""
    layout: Layout

    def fault(self, raw: RawSample, error: BaseException) -> SampleError:
        """Of an exception that was raised for a sample."""
        said = said_of(error)
        if not self.is_own and said.startswith("expected "):
            return SampleError(f"{said} ({self.layout.uri}, {self.layout.name})")
        where = _sample(raw, self.layout)
        if self.is_own:
            return SampleError(f"expected {self.what} to take {where}, got {said}{place_of(error)}; correct the function, or the sample")
        what = f"expected {self.what} to make something of {_fields(raw)} of {where}"
        return SampleError(f"{what}, got {said}; mend the sample, or leave it out on all sides")

    def nothing(self, raw: RawSample) -> SampleError:
        """Of a function that returned None."""
        return SampleError(
            f"expected {self.what} to return something for each sample, got None for {_sample(raw, self.layout)}; return what it made"
        )


def stages_of(layout: Layout, workload: Workload) -> tuple[Stage, Stage]:
    """Decode and transform of a settled workload."""
    is_decode_own = ":" in workload.decode
    decode = Stage(f"--decode {workload.decode}" if is_decode_own else f"decoding ({workload.decode})", is_decode_own, layout)
    if workload.transform is None:
        return decode, Stage("the built-in transform", False, layout)
    return decode, Stage(f"--transform {workload.transform}", True, layout)


def of_collate(collate: str | None, made_by: str, samples: Sequence[Any], error: BaseException, keys: Sequence[str] = ()) -> SampleError:
    """Of an exception that was raised for the samples of a batch; ``keys`` are theirs, where they are known."""
    if collate is not None:
        what = f"expected --collate {collate} to take a list of {len(samples)} such as {described(samples[0]) if samples else 'none'}"
        return SampleError(f"{what}, got {said_of(error)}{place_of(error)}; correct the function")
    kinds: dict[str, str] = {}
    for i, sample in enumerate(samples):
        kinds.setdefault(described(sample), f" ({keys[i]})" if keys else "")
    shown = " and ".join(f"{kind}{key if len(kinds) > 1 else ''}" for kind, key in list(kinds.items())[:2])
    shown += f" and {len(kinds) - 2} other kinds" if len(kinds) > 2 else ""
    why = "" if len(kinds) > 1 else f" ({said_of(error)})"
    remedy = "return tensors of one shape and type" if len(kinds) > 1 else "return tensors, numbers, or dicts, lists and tuples of them"
    return SampleError(
        f"expected samples that torch can put into one batch from {made_by}, got {shown}{why}; {remedy}, or give --collate pkg.mod:function"
    )


def _fields(raw: RawSample) -> str:
    """The image, which is what fails to decode where there is one; else all fields."""
    names = sorted(name for name in raw if name != KEY)
    images = [name for name in names if isinstance(raw[name], bytes | memoryview) and bytes(raw[name][:8]).startswith(_MAGIC)]
    shown = images[:1] or names
    return f"the field{'s' * (len(shown) != 1)} {', '.join(shown)}"


def _sample(raw: RawSample, layout: Layout) -> str:
    key = raw.get(KEY) or ""
    named = f"sample {key}" if key else "a sample"
    return f"{named} of {layout.uri} ({layout.name})"
