"""Whether a dataset holds rows of tokens, and what its manifest then says of each; imports what looks at them only then."""

from typing import TYPE_CHECKING

from shardtools.manifest import Manifest

if TYPE_CHECKING:
    from shardtools.verify._token_rows import TokenRules


def token_rules(manifest: Manifest | None) -> "TokenRules | None":
    """None where samples are no such rows."""
    if manifest is None or not manifest.transforms:
        return None
    from shardtools.verify._token_rows import TokenRules

    return TokenRules.of(manifest)


def has_ids_of_its_own(manifest: Manifest) -> bool:
    """Whether no two documents have one id: datasets that were merged may each have had a ``docs.jsonl``."""
    return "transforms" in manifest.recipe
