"""Level 1: what describes the dataset is sound, and the folder holds what it names."""

from shardtools.build.receipts import KEPT_PLAN_NAME
from shardtools.datasets import Dataset, is_safe_name
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME, PRIVATE_FOLDER, REJECTS_NAME, FileEntry, Manifest, ShardEntry
from shardtools.places import Listing, length_of
from shardtools.verify import _manifest
from shardtools.verify._offsets import offset_places
from shardtools.verify.findings import Findings


def check_presence(dataset: Dataset, listing: Listing, findings: Findings) -> None:
    """Compare the folder with the manifest or index."""
    for problem in dataset.problems:
        findings.add(problem.kind, problem.detail, problem.name)
    if dataset.manifest is not None:
        for detail in _manifest.contradictions(dataset, dataset.manifest):
            findings.add("manifest-contradiction", detail, MANIFEST_NAME)
        _check_published_files(dataset, listing, dataset.manifest, findings)
        return
    if not dataset.is_selection:
        _check_lost_manifest(dataset, listing, findings)
    if dataset.format_name == "mds":
        _check_indexed_files(dataset, listing, findings)
    else:
        _check_tars(dataset, listing, findings)


def _check_published_files(dataset: Dataset, listing: Listing, manifest: Manifest, findings: Findings) -> None:
    files: list[ShardEntry | FileEntry] = [*manifest.shards, *manifest.files]
    for file in files:
        if is_safe_name(file.name):
            _check_size(listing, file.name, file.num_bytes, findings)
    for file in manifest.files:
        _check_file(dataset, listing, file, findings)
    _check_lengths(dataset, listing, manifest, findings)
    known = {*manifest.names(), MANIFEST_NAME}
    for name in sorted(listing.names()):
        if name not in known and not name.startswith(PRIVATE_FOLDER + "/"):
            findings.add("extra-file", "expected only files that the manifest names, got another", name)


def _check_file(dataset: Dataset, listing: Listing, file: FileEntry, findings: Findings) -> None:
    """Level 2 of a published file that is no shard."""
    if is_safe_name(file.name) and length_of(listing, file.name) == file.num_bytes:
        actual = dataset.storage.sha256(file.name)
        if actual != file.sha256:
            findings.add("wrong-sha256", f"expected the SHA-256 {file.sha256}, got {actual}", file.name)


def _check_lengths(dataset: Dataset, listing: Listing, manifest: Manifest, findings: Findings) -> None:
    """That the files beside the shards have as many entries as the manifest has samples."""
    offsets_bytes = length_of(listing, OFFSETS_NAME)
    expected = offset_places(shard.num_samples for shard in manifest.shards)[-1]
    if offsets_bytes is not None and offsets_bytes != expected:
        detail = f"expected {expected:,} bytes, an offset for each sample and one for the end of each shard, got {offsets_bytes:,}"
        findings.add("wrong-offsets", detail, OFFSETS_NAME)
    has_rejects = manifest.ledger.num_rejected and length_of(listing, REJECTS_NAME) is not None
    num_lines = (dataset.storage.get(REJECTS_NAME) or b"").count(b"\n") if has_rejects else 0
    if has_rejects and num_lines != manifest.ledger.num_rejected:
        detail = f"expected a line for each of the {manifest.ledger.num_rejected:,} rejected samples, got {num_lines:,}"
        findings.add("manifest-contradiction", detail, REJECTS_NAME)


def _check_lost_manifest(dataset: Dataset, listing: Listing, findings: Findings) -> None:
    """What this package leaves beside a manifest tells that there was one."""
    if any(problem.name == MANIFEST_NAME for problem in dataset.problems):
        return
    left = [name for name in (OFFSETS_NAME, KEPT_PLAN_NAME) if length_of(listing, name) is not None]
    if left:
        findings.add("missing-file", f"expected a manifest beside {left[0]}, got none", MANIFEST_NAME)


def _check_indexed_files(dataset: Dataset, listing: Listing, findings: Findings) -> None:
    """For foreign MDS: each shard in one of its forms, whichever forms are there with their sizes, and no other shards."""
    known = set()
    for shard in dataset.shards:
        if shard.entry is None:
            continue  # named by itself: that it is not there is one of the dataset's problems
        forms = shard.entry.files
        known |= {form.name for form in forms}
        there = [form for form in forms if length_of(listing, form.name) is not None]
        for form in there or forms[-1:]:
            _check_size(listing, form.name, form.num_bytes, findings)
    for name in sorted(listing.names()) if not dataset.is_selection else ():
        if ".mds" in name and name not in known and not dataset.problems:
            findings.add("extra-file", "expected only shards that index.json names, got another", name)


def _check_tars(dataset: Dataset, listing: Listing, findings: Findings) -> None:
    """Foreign tars are what the folder lists; a link to nothing or a FIFO among them is none."""
    known = {problem.name for problem in dataset.problems if problem.kind == "missing-file"}
    for shard in dataset.shards:
        if shard.name not in known and length_of(listing, shard.name) is None:
            findings.add("missing-file", "expected a regular file, got none that can be read", shard.name)


def _check_size(listing: Listing, name: str, expected: int, findings: Findings) -> None:
    actual = length_of(listing, name)
    if actual is None:
        findings.add("missing-file", f"expected a file of {expected:,} bytes, got none", name)
    elif actual != expected:
        findings.add("wrong-size", f"expected {expected:,} bytes, got {actual:,}", name)
