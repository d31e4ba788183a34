"""What to type: the ``DataLoader`` call with the settings that were found, and the shared memory a container has to be given for it."""

from dataclasses import dataclass

from shardtools.bench.shm_size import ShmSize
from shardtools.bench.spec import Copy, Layout, Settings, Workload
from shardtools.units import format_bytes

TIMEOUT_SECONDS = 120

_MOVED = '''
def moved(batch, device, non_blocking):
    """All tensors of a batch, on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if isinstance(batch, dict):
        return {name: moved(part, device, non_blocking) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [moved(part, device, non_blocking) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
'''
_IN_TURN = '''
def batches_on(device, loader):
    """Each batch, brought to the device when it is needed."""
    for batch in loader:
        yield moved(batch, device, non_blocking={non_blocking})
'''
_AHEAD = '''
def hold(batch, stream):
    """Memory a stream still reads must not be given away when its last name is gone."""
    if isinstance(batch, torch.Tensor):
        batch.record_stream(stream)
    elif isinstance(batch, (dict, list, tuple)):
        for part in batch.values() if isinstance(batch, dict) else batch:
            hold(part, stream)


def batches_on(device, loader):
    """Each batch; the next one is copied, on a stream of its own, while the device computes."""
    copies = torch.cuda.Stream(device)

    def begun(batch):
        with torch.cuda.stream(copies):
            return batch, moved(batch, device, non_blocking=True)

    batches = iter(loader)
    first = next(batches, None)
    arriving = None if first is None else begun(first)
    while arriving is not None:
        _, batch = arriving
        torch.cuda.current_stream(device).wait_stream(copies)
        hold(batch, torch.cuda.current_stream(device))
        following = next(batches, None)
        arriving = None if following is None else begun(following)
        yield batch
'''


@dataclass(frozen=True)
class Call:
    """All that a snippet depends on."""

    settings: Settings
    workload: Workload
    layout: Layout
    copy: Copy | None = None
    """How batches go to CUDA; None where there is no accelerator."""
    start_method: str | None = None
    """How workers were started when it was measured."""
    has_cv2: bool = False
    """OpenCV is installed, whose threads and the workers would take the processors from each other."""


def snippet(call: Call) -> str:
    """Python that runs where ``dataset`` is the user's own dataset: it makes ``loader``, valid for any number of workers.

    For CUDA it also makes ``batches_on(device, loader)``, which copies in the measured way.
    """
    has_workers = call.settings.num_workers > 0
    parts = [_imports(call)]
    if has_workers:
        parts.append(_worker_init(call.has_cv2))
    parts.append(_loader(call))
    if call.copy is not None:
        parts += [_MOVED, _AHEAD if call.copy == "prefetch-stream" else _IN_TURN.format(non_blocking=call.copy != "blocking")]
    text = "\n\n".join(part.strip("\n") + "\n" for part in parts)
    if call.copy is not None:
        text += '\n\nfor batch in batches_on("cuda", loader):\n    pass  # your training step\n'
    return text


def _imports(call: Call) -> str:
    lines = []
    if call.settings.num_workers and call.has_cv2:
        lines.append("import cv2")
    if call.settings.num_workers or call.copy is not None:
        lines.append("import torch")
    lines.append("from torch.utils.data import DataLoader")
    if call.workload.collate is not None:
        module, _, name = call.workload.collate.partition(":")
        lines += ["", f"from {module} import {name}"]
    return "\n".join(lines)


def _worker_init(has_cv2: bool) -> str:
    lines = ["def init_worker(worker_id):", "    torch.set_num_threads(1)  # set OMP_NUM_THREADS=1 in the environment, too"]
    if has_cv2:
        lines.append("    cv2.setNumThreads(0)")
    return "\n".join(lines)


def _loader(call: Call) -> str:
    settings, workload = call.settings, call.workload
    is_map_style = call.layout.kind == "files"
    arguments = ["dataset,  # yours, as it is", f"batch_size={workload.batch_size},"]
    if is_map_style:
        arguments.append(f"shuffle={workload.shuffle},")
    if workload.collate is not None:
        arguments.append(f"collate_fn={workload.collate.partition(':')[2]},")
    arguments.append(f"num_workers={settings.num_workers},")
    if settings.num_workers:
        arguments += [
            f"prefetch_factor={settings.prefetch_factor},",
            f"persistent_workers={settings.persistent_workers},",
            f"timeout={TIMEOUT_SECONDS},  # seconds; without it a lost worker hangs the loop",
            "worker_init_fn=init_worker,",
        ]
        if call.start_method is not None:
            arguments.append(f'multiprocessing_context="{call.start_method}",')
        if not settings.in_order:
            arguments.append("in_order=False,  # batches may come in another order")
    arguments.append(f"pin_memory={settings.pin_memory},")
    dropped = "the last partial batch" if is_map_style or not settings.num_workers else "the rest of every worker, not one batch"
    arguments.append(f"drop_last=False,  # True would drop {dropped}")
    body = "\n".join(f"    {argument}" for argument in arguments)
    note = ""
    if settings.num_workers and call.start_method in ("spawn", "forkserver"):
        note = '# In a script: below `if __name__ == "__main__":`, since workers import it.\n'
    return f"{note}loader = DataLoader(\n{body}\n)"


def shared_memory_lines(bound_bytes: int) -> dict[str, str]:
    """``docker`` and ``kubernetes``: what gives a container ``/dev/shm`` for a prediction of so many bytes."""
    size = ShmSize.for_bytes(bound_bytes)
    why = f"# {format_bytes(bound_bytes)} foreseen" if bound_bytes else "# num_workers=0 needs none; this is Docker's default"
    return {
        "docker": f"docker run --shm-size={size.docker} ...  {why}",
        "kubernetes": (
            f"volumes:  # of the pod\n  - name: shm\n    emptyDir: {{medium: Memory, sizeLimit: {size.kubernetes}}}  {why}\n"
            "volumeMounts:  # of the container\n  - {name: shm, mountPath: /dev/shm}\n"
        ),
    }
