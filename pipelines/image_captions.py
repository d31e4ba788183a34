"""Pack captions that point at images, {"image": "a/b.jpg", "caption": "..."} a line, into shards that hold both.

    python -m pipelines.image_captions captions.jsonl shards/wds --media-root photos/
    python -m pipelines.image_captions captions.jsonl s3://bucket/mds --to mds --media-root s3://bucket/photos

Of a record whose image is missing, or lies outside the folder, nothing is packed: it is a bad sample (--max-bad 0.1% sets
some aside). Samples come in one permutation of all.
"""

from pipelines._job import given, packed, parser_of
from shardtools.build.order import OrderWords


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--to", choices=("wds", "mds"), default="wds", help="the format (default: %(default)s)")
    parser.add_argument("--key", metavar="FIELD", help="the record field that names the sample (default: file and byte offset)")
    parser.add_argument("--embed", default="image", metavar="SPEC", help="the record field with the path (default: %(default)s)")
    parser.add_argument("--media-root", metavar="DIR", help="the folder that paths are below (default: that of SRC)")
    parser.add_argument("--image-resize", metavar="N", help="make images smaller whose shorter side has more pixels (default: not)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the permutation (default: %(default)s)")
    asked = parser.parse_args()
    words = OrderWords(
        format=asked.to,
        source="jsonl",
        source_options=given(asked, "key"),
        embed_options=given(asked, "embed", "media_root"),
        image_options=given(asked, "image_resize"),
        shuffle=True,
        seed=asked.seed,
    )
    return packed(asked, words)


if __name__ == "__main__":
    raise SystemExit(main())
