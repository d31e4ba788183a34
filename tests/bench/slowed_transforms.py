"""Work of a known cost in place of a transform, for runs whose true ratio is known."""

import time
from typing import Any

import numpy as np
import torch

MILLISECONDS = 3.0


def plain(image: Any) -> torch.Tensor:
    """Thread CPU time, whatever else the machine does; then a small tensor of the image."""
    return _burnt(image, 1.0)


def slower(image: Any) -> torch.Tensor:
    return _burnt(image, 1.3)


def _burnt(image: Any, factor: float) -> torch.Tensor:
    began = time.thread_time()
    small = torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1).contiguous()
    while time.thread_time() - began < factor * MILLISECONDS / 1000:
        pass
    return small
