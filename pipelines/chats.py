"""Pack chats, a list of messages in each JSON record, into MDS rows of tokens with a loss mask.

    python -m pipelines.chats chats.jsonl shards/chats --tokenizer tokenizer/

The tokenizer's own template writes the turns; only what the assistant says is in the loss. Chats longer than a row are left
out and counted, or cut with --long-docs truncate.
"""

from pipelines._job import packed, parser_of
from shardtools.build.order import OrderWords


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--tokenizer", required=True, metavar="DIR", help="a tokenizer with a chat template")
    parser.add_argument("--seq-len", default="2048", metavar="N", help="tokens in a row (default: %(default)s)")
    parser.add_argument("--text-key", default="messages", metavar="A.B", help="the record field of the messages (default: %(default)s)")
    parser.add_argument("--long-docs", choices=("drop", "truncate"), default="drop", help="chats above a row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the order of rows (default: %(default)s)")
    asked = parser.parse_args()
    tokens = {"tokenizer": asked.tokenizer, "seq_len": asked.seq_len, "text_key": asked.text_key, "long_docs": asked.long_docs, "chat": ""}
    return packed(asked, OrderWords(format="mds", source="jsonl", token_options=tokens, seed=asked.seed))


if __name__ == "__main__":
    raise SystemExit(main())
