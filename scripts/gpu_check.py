"""Check on a CUDA machine what only CUDA can show of ``shardtools bench``; at most five minutes, one JSON and a short table.

Runs from a checkout with torch, numpy, psutil, nvidia-ml-py and pillow. Each check says what it expected, what it got, and ``passed``,
``failed`` or ``not run`` with the reason. Exit code: 0 all passed, 1 one failed, 3 no CUDA, 4 none failed but some were not run.
``--dry-run`` makes the same checks on a simulated device, which shows that the checks work and nothing of this machine.
"""

import argparse
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

_LIMIT_SECONDS = 280.0
_LAST_SECONDS = 5.0
"""To write down what there is when a check does not end."""
_WINDOWS_A_CHECK = 10
_NEEDED_WINDOWS = 40
"""The longest check has about so many, start-up of loaders included."""


def main(arguments: list[str] | None = None) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    options = _options(arguments)
    import torch
    from _gpu_checks import CHECKS
    from _gpu_report import EXIT_NO_CUDA, Deadline, Results, exit_code, run_checks, table

    from shardtools.bench.devices import NoCudaError

    deadline, results = Deadline(_LIMIT_SECONDS), Results(CHECKS)
    report = _report(options)
    try:
        rig = _rig(options)
    except NoCudaError as error:
        reason = f"{str(error).partition(';')[0]}; run it where there is one, or try the checks themselves with --dry-run"
        for name in CHECKS:
            results.put(name, reason=reason)
        _write(report, results.listed(), options.out)
        print(f"{len(CHECKS)} checks not run: {reason}", file=sys.stderr)
        return EXIT_NO_CUDA
    torch.set_num_threads(1)  # as a trial does
    report["device_facts"] = rig.facts()
    watchdog = threading.Timer(deadline.left + _LAST_SECONDS, _give_up, [report, results, options.out])
    watchdog.daemon = True
    watchdog.start()
    try:
        run_checks(CHECKS, rig, results, deadline, _NEEDED_WINDOWS * rig.seconds)
    finally:
        watchdog.cancel()
    entries = results.listed()
    _write(report, entries, options.out)
    print(table(entries))
    return exit_code(entries)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--dry-run", action="store_true", help="on a simulated device; shows nothing of this machine")
    parser.add_argument("--seconds-per-check", type=float, metavar="S", help="a window lasts a tenth of it [default: 10; in a dry run 1]")
    options = parser.parse_args(arguments)
    if options.seconds_per_check is None:
        options.seconds_per_check = 1.0 if options.dry_run else 10.0
    if not 0.1 <= options.seconds_per_check <= 60:
        parser.error(f"expected 0.1 to 60 for --seconds-per-check, got {options.seconds_per_check:g}")
    if not Path(options.out).resolve().parent.is_dir():
        parser.error(f"expected --out in a folder that is there, got {options.out}")
    return options


def _rig(options: argparse.Namespace) -> Any:
    from _gpu_rig import CudaRig
    from _gpu_sim import SimRig

    seconds = options.seconds_per_check / _WINDOWS_A_CHECK
    return SimRig(seconds) if options.dry_run else CudaRig(seconds)


def _report(options: argparse.Namespace) -> dict[str, Any]:
    """All but the checks, gathered before anything can hang."""
    from _gpu_report import SCHEMA

    from shardtools.bench.environment import ledger

    return {"schema": SCHEMA, "device": "sim" if options.dry_run else "cuda", "device_facts": {}, "environment": ledger([])}


def _write(report: dict[str, Any], entries: list[dict[str, Any]], out: str) -> None:
    from _gpu_report import counts

    part = Path(f"{out}.part")
    part.write_text(json.dumps({**report, "counts": counts(entries), "checks": entries}, indent=1) + "\n", encoding="utf-8")
    part.replace(out)


def _give_up(report: dict[str, Any], results: Any, out: str) -> None:
    """A check hangs, most likely in the driver, where no exception reaches it: the process ends with what is known."""
    from _gpu_report import EXIT_FAILED, table

    try:
        _write(report, results.listed(), out)
        print(table(results.listed()), flush=True)
    finally:
        os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
