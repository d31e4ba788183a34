"""What the libraries that load data can do as they are installed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.bench.doctor.finding import Finding

_SLOW_IMPORT_S = 5.0


def package_findings(environment: Mapping[str, Any], torch: Mapping[str, Any] | None, torch_reason: str | None) -> Iterator[Finding]:
    """``torch``: what a process that imported it says of itself; None with the reason."""
    yield from _torch(environment, torch, torch_reason)
    pillow = environment.get("pillow")
    if pillow is None:
        yield Finding("warning", "pillow", "Pillow is not installed, so no image can be decoded: `pip install pillow`.")
    elif not pillow["libjpeg"].startswith("libjpeg-turbo"):
        yield Finding(
            "warning",
            "pillow",
            f"{pillow['package']} {pillow['version']} decodes JPEG by {pillow['libjpeg']}, some three times slower than libjpeg-turbo: "
            "`pip install --force-reinstall pillow`.",
        )


def _torch(environment: Mapping[str, Any], torch: Mapping[str, Any] | None, reason: str | None) -> Iterator[Finding]:
    gpus = environment.get("gpu") or []
    if torch is None:
        if environment.get("torch") is None:
            yield Finding("note", "torch", "torch is not installed, so no batch can be measured: `pip install 'shardtools[train]'`.")
        else:
            yield Finding("fault", "torch", f"torch cannot be used: {reason or 'it did not say why'}; install it anew.")
        return
    yield from _cuda(gpus, torch)
    if torch["sharing"] != "file_descriptor":
        yield Finding(
            "note",
            "torch",
            f"torch shares tensors by {torch['sharing']}, which leaves files in /dev/shm when a worker is killed: see `ls /dev/shm`.",
        )
    if torch["import_s"] > _SLOW_IMPORT_S:
        yield Finding(
            "note",
            "torch",
            f"Importing torch took {torch['import_s']:.1f} s, and workers that are not forked each do it: keep site-packages on a local "
            "disk, and use persistent_workers=True.",
        )


def _cuda(gpus: Sequence[Mapping[str, Any]], torch: Mapping[str, Any]) -> Iterator[Finding]:
    if gpus and torch["cuda_build"] is None:
        yield Finding(
            "fault",
            "torch",
            f"torch {torch['version']} is built without CUDA, and {gpus[0]['name']} is here: install the build pytorch.org names for "
            f"driver {gpus[0]['driver']}.",
        )
    elif torch["cuda_build"] is not None and not torch["is_cuda_available"]:
        why = torch["cuda_reason"] or "no device"
        if gpus:
            yield Finding(
                "fault",
                "torch",
                f"torch {torch['version']} (CUDA {torch['cuda_build']}) cannot use {gpus[0]['name']}: {why}; update driver "
                f"{gpus[0]['driver']}, or unset CUDA_VISIBLE_DEVICES.",
            )
        else:
            yield Finding(
                "note", "torch", f"torch {torch['version']} finds no CUDA device ({why}): in a container, `docker run --gpus all`."
            )
