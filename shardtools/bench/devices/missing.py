"""The faults of a library or a device that is not there."""

from shardtools.errors import ShardtoolsError


class NoCudaError(ShardtoolsError):
    """A CUDA device was asked for and there is none."""


def require_torch() -> None:
    """Raises ShardtoolsError where torch is not installed, or its libraries cannot be loaded, as under a small ``ulimit -v``."""
    try:
        import torch  # noqa: F401 - whether it can be
    except ModuleNotFoundError as error:
        raise ShardtoolsError(f"expected torch, got none: {error}; run pip install 'shardtools[train]'") from error
    except (ImportError, OSError, MemoryError) as error:
        reason = " ".join(str(error).split()) or "out of memory"
        raise ShardtoolsError(f"expected a torch that can be imported, got {reason!r}; see what `shardtools doctor` says") from error


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
