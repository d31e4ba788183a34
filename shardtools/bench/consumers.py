"""What takes the batches: nobody, a computation of a given length, or a model that trains on them."""

import importlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from shardtools.bench.devices import Device
from shardtools.bench.leaves import leaves
from shardtools.bench.spec import Consumer
from shardtools.errors import UsageError

Step = Callable[[Any], None]
"""Forward, backward and optimizer on a batch that is on the device; returns when they are launched."""

CPU_MODEL_WARNING = "The model computes on the processor and takes it from the loader's workers: its step is not that of an accelerator"

_NUM_CLASSES = 1000
_MAX_TOKEN = 65_536


def open_step(consumer: Consumer, batch: Any, device: Device) -> Step | None:
    """The step of a consumer; None for ``none``, which only drains.

    ``batch`` is a first one, on the device, that tells a model its shapes. Raises UsageError where the model cannot be had.
    """
    if consumer.kind == "none":
        return None
    if consumer.kind == "sim":
        return _simulated(consumer, device)
    if device.name == "sim":
        raise UsageError("expected the consumer sim on a simulated device, got model; give --consumer sim --step-ms")
    if consumer.model is not None:
        return _own_model(consumer.model, batch, torch.device(device.target))
    return _model_for(batch, torch.device(device.target))


def _simulated(consumer: Consumer, device: Device) -> Step:
    def step(_: Any) -> None:
        if consumer.launch_cpu_ms:
            _burn(consumer.launch_cpu_ms)
        device.busy(consumer.step_ms)

    return step


def _burn(milliseconds: float) -> None:
    """Of this thread's CPU time: a core that is taken by others makes it take longer, as it does a launch."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        pass


def _own_model(name: str, batch: Any, target: torch.device) -> Step:
    """``pkg.mod:factory`` is called with a batch on the device and the device; it returns the step."""
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"expected pkg.mod:factory for --model, got {name!r} ({type(error).__name__}: {error}); correct it") from None
    step = factory(batch, target)
    if not callable(step):
        raise UsageError(f"expected {name} to return a function of a batch, got {type(step).__name__}; see --model")
    made: Step = step
    return made


def _model_for(batch: Any, target: torch.device) -> Step:
    """By the first tensor that looks like images, else like rows of tokens."""
    found = leaves(batch)
    for i, leaf in enumerate(found):
        if leaf.tensor.dim() == 4 and leaf.tensor.shape[1] in (1, 3):
            return _trained(SmallResNet(leaf.tensor.shape[1]).to(target), i)
    for i, leaf in enumerate(found):
        if leaf.tensor.dim() == 2 and not leaf.tensor.is_floating_point() and leaf.tensor.dtype != torch.bool:
            return _trained(SmallTransformer(leaf.tensor.shape[1]).to(target), i)
    shapes = ", ".join(f"{leaf.path} {list(leaf.tensor.shape)} {str(leaf.tensor.dtype).removeprefix('torch.')}" for leaf in found)
    raise UsageError(
        f"expected images [B, 3, H, W] or rows of tokens [B, L] for --consumer model, got {shapes or 'no tensor'}; "
        "give --decode, --model pkg.mod:factory or --consumer sim"
    )


def _trained(model: nn.Module, place: int) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss: torch.Tensor = model(leaves(batch)[place].tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


class SmallResNet(nn.Module):
    """Three residual stages; the loss of images against made-up classes, since only the cost of a step matters."""

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(num_channels, 32, 7, 4, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.stages = nn.Sequential(_Block(32, 64), _Block(64, 128), _Block(128, 256))
        self.head = nn.Linear(256, _NUM_CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images if images.is_floating_point() else images.float().div(255)
        features = self.stages(self.stem(pixels)).mean((2, 3))
        classes = torch.arange(len(images), device=images.device) % _NUM_CLASSES
        return nn.functional.cross_entropy(self.head(features), classes)


class _Block(nn.Module):
    def __init__(self, num_in: int, num_out: int) -> None:
        super().__init__()
        self.straight = nn.Conv2d(num_in, num_out, 1, 2, bias=False)
        self.bent = nn.Sequential(
            nn.Conv2d(num_in, num_out, 3, 2, 1, bias=False),
            nn.BatchNorm2d(num_out),
            nn.ReLU(),
            nn.Conv2d(num_out, num_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(num_out),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.straight(features) + self.bent(features))


class SmallTransformer(nn.Module):
    """Two causal layers of width 128; the loss of the next token. Tokens are taken modulo 65,536, which changes no cost."""

    def __init__(self, seq_len: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_MAX_TOKEN, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(seq_len - 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        tokens = rows.long() % _MAX_TOKEN
        features = self.layers(self.embed(tokens[:, :-1]), mask=self.mask, is_causal=True)
        # Against the embedding of the first 1,000 tokens only: a head over all of them would be most of a small step.
        logits = features @ self.embed.weight[:_NUM_CLASSES].T
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten() % _NUM_CLASSES)
