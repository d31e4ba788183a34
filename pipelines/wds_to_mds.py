"""Convert WebDataset shards into MDS shards: same keys, same bytes, a column for each field.

    python -m pipelines.wds_to_mds shards/wds shards/mds
    python -m pipelines.wds_to_mds 'foreign/train-{000000..000123}.tar' s3://bucket/mds --compression zstd

Shards that shardtools made of MDS or of tables become what they were, since their manifest keeps the columns. With --shuffle
--seed S the samples come in another order, one permutation of all.
"""

from pipelines._job import given, packed, parser_of
from shardtools.build.order import OrderWords


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--shard-size", default="64MiB", metavar="SIZE", help="most bytes a shard may have (default: %(default)s)")
    parser.add_argument("--compression", metavar="zstd[:LEVEL]", help="compress shards (default: not)")
    parser.add_argument("--shuffle", action="store_true", help="permute all samples (default: the order they have)")
    parser.add_argument("--seed", type=int, metavar="S", help="of --shuffle, which needs it")
    asked = parser.parse_args()
    words = OrderWords(
        format="mds",
        source="wds",
        format_options=given(asked, "compression"),
        shard_size=asked.shard_size,
        shuffle=asked.shuffle,
        seed=asked.seed,
    )
    return packed(asked, words)


if __name__ == "__main__":
    raise SystemExit(main())
