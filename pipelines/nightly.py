"""Pack, verify, bench: one job with one exit code, for a scheduler to watch.

    python -m pipelines.nightly images/ shards/images --require-ratio 1.2 --report reports/images
    python -m pipelines.nightly docs.jsonl shards/tokens --tokenizer tokenizer/

0: the dataset is there, whole, and as fast as was required; 1: verify found something or the bound was missed; others as of shardtools.
A --part that leaves work to others ends with 0; each that finds the dataset published verifies and benches it (--no-bench: only verifies).
"""

from argparse import Namespace

from pipelines._job import given, pack, parser_of, run, say
from shardtools.bench.blocks import BlockPlan
from shardtools.bench.devices import require_torch
from shardtools.bench.report import make_folder
from shardtools.bench.report.gates import Bounds
from shardtools.bench.request import BenchRequest
from shardtools.bench.run import bench
from shardtools.bench.spec import Workload
from shardtools.build.order import OrderWords
from shardtools.verify import VerifyOptions, verify


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--tokenizer", metavar="FILE|DIR", help="pack rows of tokens, of JSON lines")
    parser.add_argument("--seq-len", default="2048", metavar="N", help="tokens in a row (default: %(default)s)")
    parser.add_argument("--no-bench", action="store_true", help="only pack and verify, which needs no torch")
    parser.add_argument("--require-ratio", type=float, metavar="R", help="fail unless DST is surely read R times as fast as SRC")
    parser.add_argument("--blocks", type=int, choices=range(1, 21), default=6, metavar="N", help="paired trials (default: %(default)s)")
    parser.add_argument("--min-seconds", type=float, default=5.0, metavar="X", help="of each trial (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="X", help="seconds of a trial at most (default: %(default)s)")
    parser.add_argument("--report", metavar="DIR", help="write the report of the bench there")
    asked = parser.parse_args()
    if asked.no_bench and given(asked, "require_ratio", "report"):
        parser.error("expected neither --require-ratio nor --report with --no-bench, which measures nothing, got one; leave it out")
    return run(lambda: _nightly(asked))


def _nightly(asked: Namespace) -> int:
    request = _request(asked)  # first: what is wrong with it shall not be found when all is packed
    if pack(asked, _words(asked)) is None:
        return 0
    verdict = verify(asked.destination, VerifyOptions(no_dup=True, against=(asked.source,), tokenizer=asked.tokenizer))
    print(*verdict.findings, *verdict.paragraphs(), sep="\n", flush=True)
    if verdict.exit_code or request is None:
        return verdict.exit_code
    report = bench(request, say)
    print(*report.lines("en"), *report.missed, sep="\n")
    if asked.report is not None:
        say(f"report: {report.write(asked.report)}")
    return report.exit_code


def _request(asked: Namespace) -> BenchRequest | None:
    if asked.no_bench:
        return None
    require_torch()
    if asked.report is not None:
        make_folder(asked.report)
    return BenchRequest(
        uris=(asked.source, asked.destination),
        workload=Workload(tokenizer=asked.tokenizer),
        plan=BlockPlan.fixed(asked.blocks, 0),
        min_seconds=asked.min_seconds,
        timeout_seconds=asked.timeout,
        attribute="none" if asked.report is None else "first",  # what limits the loader takes longer than all else
        bounds=Bounds(asked.require_ratio, None),
    )


def _words(asked: Namespace) -> OrderWords:
    if asked.tokenizer is None:
        return OrderWords(format="wds", source="files", shuffle=True, seed=0)
    return OrderWords(format="mds", source="jsonl", token_options=given(asked, "tokenizer", "seq_len"))


if __name__ == "__main__":
    raise SystemExit(main())
