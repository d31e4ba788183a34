"""The fault of a device that is not there."""

from shardtools.errors import ShardtoolsError


class NoCudaError(ShardtoolsError):
    """A CUDA device was asked for and there is none."""


def require_cuda() -> None:
    """Raises NoCudaError where there is no CUDA device."""
    import torch

    if torch.cuda.is_available():
        return
    built = (
        "is built without CUDA"
        if torch.version.cuda is None
        else f"is built for CUDA {torch.version.cuda}, but there is no device or driver"
    )
    raise NoCudaError(f"expected a CUDA device, got none: torch {torch.__version__} {built}; measure the loader alone with --device cpu")
