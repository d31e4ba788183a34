"""Measure shardtools beside its peers, and each claim on its speed and memory against its bound.

Every side is a fresh process, start-up included. A round runs every side of a case once; one round that is not counted
warms the page cache and shows that all sides stored the same samples. Before each run the destination is removed and
``sync`` waits until the last run's bytes are on disk. Medians over rounds, with the least and the greatest.

Takes about an hour and a half and 30 GB of disk, most of it for a million small files, for the shards to verify and for what is shuffled.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from _batch_cases import convert_case, parquet_case, ray_case, ray_tiny_case, shuffle_case, shuffle_memory_case
from _image_cases import images_case
from _inputs import SHARDTOOLS
from _loader_cases import (
    loader_decode_case,
    loader_mds_case,
    loader_memory_case,
    loader_startup_case,
    loader_tokens_case,
    loader_wds_case,
)
from _measure import Case, Claim, Round, Side, measure, remove, say
from _pack_cases import files_case, jsonl_case, memory_case
from _report import report, tables
from _s3_cases import s3_copied_case, s3_objects_case, s3_objects_latency_case, s3_read_case, s3_upload_case
from _token_cases import tokens_case, tokens_code_case
from _verify_cases import verify_case, verify_memory_case, verify_tiny_case

STARTUP_BOUND_SECONDS = 0.060


def startup_case(_work: Path, _scale: float) -> Case:
    """``--help`` beside the import of the one library it cannot do without."""
    ours = Side("shardtools --help", (*SHARDTOOLS, "--help"), 1)
    bare = Side("import click", (sys.executable, "-c", "import click"), 1)

    def above(round_: Round) -> float:
        return round_[ours.name].wall_seconds - round_[bare.name].wall_seconds

    return Case("startup", [ours, bare], [Claim("seconds above a bare import of click", above, STARTUP_BOUND_SECONDS, at_most=True)])


CASES = {
    "convert": convert_case,
    "files": files_case,
    "images": images_case,
    "jsonl": jsonl_case,
    "loader-decode": loader_decode_case,
    "loader-mds": loader_mds_case,
    "loader-memory": loader_memory_case,
    "loader-startup": loader_startup_case,
    "loader-tokens": loader_tokens_case,
    "loader-wds": loader_wds_case,
    "memory": memory_case,
    "parquet": parquet_case,
    "ray": ray_case,
    "ray-tiny": ray_tiny_case,
    "s3-copied": s3_copied_case,
    "s3-objects": s3_objects_case,
    "s3-objects-latency": s3_objects_latency_case,
    "s3-read": s3_read_case,
    "s3-upload": s3_upload_case,
    "shuffle": shuffle_case,
    "shuffle-memory": shuffle_memory_case,
    "startup": startup_case,
    "tokens": tokens_case,
    "tokens-code": tokens_code_case,
    "verify": verify_case,
    "verify-tiny": verify_tiny_case,
    "verify-memory": verify_memory_case,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="counted rounds (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"one of {', '.join(CASES)}; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a dry run; a missed bound is then no failure")
    parser.add_argument("--work-dir", type=Path, help="where data is made and kept for the next time (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, the tables on standard error")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardtools-bench-") as temporary:
        work = arguments.work_dir or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        cases = []
        for name in arguments.only or CASES:
            case = Case(name, [], [])
            try:
                case = CASES[name](work, arguments.scale)
                measure(case, work, arguments.runs)
            finally:
                case.close()
                for folder in work.glob("tiny-*"):
                    remove(folder)
            # A case that lacks its inputs has said why, and has no sides.
            cases += [case] if case.sides else []
    if not cases:
        say("nothing was measured")
        return 0
    result = report(cases, arguments.scale)
    if arguments.json:
        say(tables(result))
        print(json.dumps(result, indent=1))
    else:
        print(tables(result))
    # A dry run shows that the script works, not that a bound is kept.
    return 0 if arguments.scale != 1 or all(row["met"] for row in result["claims"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
