"""Pack a folder of images into WebDataset shards, in one permutation of all images.

    python -m pipelines.image_folder photos/ shards/photos
    python -m pipelines.image_folder imagenet/train/ s3://bucket/imagenet --label-from dir

Files beside an image that share its name (a.jpg, a.json, a.txt) are fields of the same sample.
"""

from pipelines._job import given, packed, parser_of
from shardtools.build.order import OrderWords


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--label-from", choices=["dir"], help="the top-level folder an image lies in is its class, stored as cls")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the permutation (default: %(default)s)")
    parser.add_argument("--shard-size", default="256MiB", metavar="SIZE", help="most bytes a shard may have (default: %(default)s)")
    asked = parser.parse_args()
    words = OrderWords(
        format="wds",
        source="files",
        source_options=given(asked, "label_from"),
        shard_size=asked.shard_size,
        # Sorted by class, shards would train badly.
        shuffle=True,
        seed=asked.seed,
    )
    return packed(asked, words)


if __name__ == "__main__":
    raise SystemExit(main())
