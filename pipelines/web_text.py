"""Pack web text, one JSON record a line, into MDS rows of tokens for language models.

    python -m pipelines.web_text crawl/ shards/tokens --tokenizer tokenizer/
    python -m pipelines.web_text crawl.jsonl.zst shards/tokens --tokenizer tokenizer/ --seq-len 4096 --text-key body.text

Documents are packed whole where a row holds them (best-fit decreasing); no token is lost.
"""

from pipelines._job import packed, parser_of
from shardtools.build.order import OrderWords


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--tokenizer", required=True, metavar="FILE|DIR", help="tokenizer.json, or the folder it lies in")
    parser.add_argument("--seq-len", default="2048", metavar="N", help="tokens in a row (default: %(default)s)")
    parser.add_argument("--text-key", default="text", metavar="A.B", help="the record field of the text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the order of rows (default: %(default)s)")
    asked = parser.parse_args()
    tokens = {"tokenizer": asked.tokenizer, "seq_len": asked.seq_len, "text_key": asked.text_key, "packing": "bfd"}
    return packed(asked, OrderWords(format="mds", source="jsonl", token_options=tokens, seed=asked.seed))


if __name__ == "__main__":
    raise SystemExit(main())
