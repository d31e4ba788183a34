"""Which libraries are installed, told without importing the heavy ones."""

import platform
from importlib import metadata
from typing import Any

from shardtools.bench.not_measured import Reasons, Unknown

_DISTRIBUTIONS = {
    "torch": "torch",
    "torchvision": "torchvision",
    "webdataset": "webdataset",
    "streaming": "mosaicml-streaming",
    "numpy": "numpy",
    "tokenizers": "tokenizers",
}


def installed(reasons: Reasons) -> dict[str, Any]:
    """Version by name; ``pillow`` says which of its two builds is in use, and what it decodes JPEG with."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for name, distribution in _DISTRIBUTIONS.items():
        found[name] = reasons.attempt(name, lambda wanted=distribution: version_of(wanted))  # type: ignore[misc]
    return found | {"pillow": reasons.attempt("pillow", pillow)}


def version_of(distribution: str) -> str:
    """Raises Unknown where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise Unknown(f"{distribution} is not installed") from None


def pillow() -> dict[str, Any]:
    """Raises Unknown where Pillow cannot be imported.

    pillow-simd installs over Pillow and calls itself ``PIL`` too; its versions end in ``.postN``, which Pillow's own never do.
    """
    try:
        from PIL import __version__, features
    except ImportError:
        raise Unknown("pillow is not installed") from None
    is_turbo = bool(features.check_feature("libjpeg_turbo"))
    libjpeg = features.version_feature("libjpeg_turbo") if is_turbo else features.version_codec("jpg")
    return {
        "package": "pillow-simd" if ".post" in __version__ else "pillow",
        "version": __version__,
        "libjpeg": f"libjpeg-turbo {libjpeg}" if is_turbo else f"libjpeg {libjpeg}",
    }
