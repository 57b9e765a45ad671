"""What a step must cost at least: the bytes it has to move, over the bandwidth that a plain copy reaches."""

from collections.abc import Iterator

import torch
from torch.utils.benchmark import timer as synchronized_time

from optimbench import _format, _stats
from optimbench.devices import usable_device
from optimbench.errors import InvalidArgumentError, RecipeError
from optimbench.results import Bandwidth

__all__ = ["bytes_per_step", "cache_note", "copy_bandwidth", "floor_s", "uncached_bytes_per_step"]

# Far beyond every cache: 4 times the largest L2 of today's GPUs even for one of the two buffers, and of a CPU's L3.
_COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
_BLOCKS = 20
# Copies between two looks at the clock, so that launching and synchronising are a small part of a block.
_COPIES_PER_BLOCK = {"cuda": 10, "cpu": 1}
_WARM_UP_COPIES = 3


def bytes_per_step(optimizer: torch.optim.Optimizer) -> int:
    """Bytes that one step reads and writes at least, with the optimizer's options, once its state exists.

    Every element is updated from its own parameter, gradient and state, so each of them is read once and, except for
    the gradient, written once: 2 parameter + 1 gradient + 2 for each state tensor, times its element size. In
    float32, with the state tensors that each optimizer keeps:

    - SGD 12 B a parameter; with momentum one more tensor, 20 B.
    - Adam, AdamW, NAdam, RAdam, Adamax: two moments, 28 B; with `amsgrad` a third, 36 B.
    - RMSprop: one, 20 B; `centered` and `momentum` one more each, 8 B.
    - Adagrad: one, 20 B. Adadelta and Rprop: two, 28 B.
    - ASGD: the average is only written while it equals the parameter (up to step t0), 16 B; later also read, 20 B.

    Temporaries that an implementation writes and reads again are not counted: they are what fusing saves. Parameters
    without a gradient are not counted, because a step leaves them alone; scalars such as step counts neither.

    Args:
        optimizer: One of torch's that updates element by element.

    Raises:
        RecipeError: The optimizer's least traffic is not known, because it does not update element by element, is not
            one of torch's, or has sparse gradients.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(1000))
        >>> weight.grad = torch.ones(1000)
        >>> ob.bytes_per_step(torch.optim.Adam([weight]))
        28000
    """
    return sum(size * accesses for size, accesses in _accesses(optimizer))


def copy_bandwidth(device: torch.device | str, *, copied_bytes: int | None = None) -> Bandwidth:
    """Measure how fast a device copies a large tensor; bytes read and bytes written are counted both.

    That is how STREAM counts its copy (McCalpin, Memory Bandwidth and Machine Balance in Current High Performance
    Computers, 1995). A write that first fetches the line it changes, as on many CPUs, is not counted twice: there
    a step in place, which has read what it overwrites, can move its bytes faster than the copy.

    Args:
        device: A CUDA device, timed with CUDA events, or the CPU, timed with the clock of `torch.utils.benchmark` and
            with as many threads as torch uses now.
        copied_bytes: Bytes of the tensor; by default 1 GiB on CUDA and 256 MiB on a CPU, more than its caches hold.

    Returns:
        Twenty blocks and their median.

    Raises:
        InvalidArgumentError: The device is neither, or the size is not positive.
        DeviceError: There is no such CUDA device.

    Example:
        >>> import optimbench as ob
        >>> ob.copy_bandwidth("cpu", copied_bytes=1 << 20).moved_bytes
        2097152
    """
    device = usable_device(device)
    n_bytes = _COPIED_BYTES[device.type] if copied_bytes is None else copied_bytes
    if n_bytes < 1:
        raise InvalidArgumentError(f"copied_bytes is {n_bytes} (expected at least 1)")
    source = torch.ones(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    for _ in range(_WARM_UP_COPIES):
        target.copy_(source)
    copies = _COPIES_PER_BLOCK[device.type]
    take_block = _cuda_block_s if device.type == "cuda" else _cpu_block_s
    times_s = tuple(take_block(source, target, copies) for _ in range(_BLOCKS))
    return Bandwidth(
        device=device.type, moved_bytes=2 * n_bytes, block_times_s=times_s, median_s=_stats.median(times_s)
    )


def floor_s(optimizer: torch.optim.Optimizer, bandwidth: Bandwidth) -> float:
    """Seconds that a step takes at least, if memory is what limits it: its least bytes over the copy bandwidth.

    This is the memory side of the roofline model (Williams, Waterman and Patterson, Roofline: An Insightful Visual
    Performance Model for Multicore Architectures, 2009). An update computes so little for each byte that the other
    side does not matter. On a CPU this is an estimate and no hard limit: `copy_bandwidth` says why.

    Args:
        optimizer: As in `bytes_per_step`.
        bandwidth: Of the device that holds the parameters, as `copy_bandwidth` measures it.

    Raises:
        RecipeError: As in `bytes_per_step`.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(1000))
        >>> weight.grad = torch.ones(1000)
        >>> twenty_gb_a_second = ob.Bandwidth(
        ...     device="cpu", moved_bytes=2_000_000_000, block_times_s=(0.1,), median_s=0.1
        ... )
        >>> ob.floor_s(torch.optim.Adam([weight]), twenty_gb_a_second)
        1.4e-06
    """
    return bytes_per_step(optimizer) / bandwidth.bytes_per_s


def cache_note(optimizer: torch.optim.Optimizer) -> str | None:
    """Why the floor does not apply, where the reason is that a GPU's L2 cache holds all a step touches; else None.

    What stays in the cache from one step to the next is read faster than from memory, so a step can be faster than
    the floor when steps follow each other directly, as they do while measuring.

    Args:
        optimizer: As in `bytes_per_step`.

    Raises:
        RecipeError: As in `bytes_per_step`.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(1000))  # Not on a GPU.
        >>> print(ob.cache_note(torch.optim.Adam([weight])))
        None
    """
    cache_bytes = _cache_bytes(optimizer)
    touched_bytes = sum(size for size, _ in _accesses(optimizer))
    if cache_bytes is None or touched_bytes > cache_bytes:
        return None
    return (
        f"the {_format.byte_count(touched_bytes)} that a step touches fit into the L2 cache of"
        f" {_format.byte_count(cache_bytes)}, so the floor from the copy bandwidth does not apply"
    )


def uncached_bytes_per_step(optimizer: torch.optim.Optimizer) -> int | None:
    """The bytes of a step whose time must be near the floor; None where a cache could serve half of them or more.

    None too on a CPU, whose caches torch does not tell, where the least bytes are not known, and for parameters of
    other kinds, such as one that is spread over several GPUs.
    """
    cache_bytes = _cache_bytes(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not {type(parameter) for parameter in parameters} <= {torch.Tensor, torch.nn.Parameter}:
        return None
    try:
        if cache_bytes is None or sum(size for size, _ in _accesses(optimizer)) < 2 * cache_bytes:
            return None
        return bytes_per_step(optimizer)
    except RecipeError:
        return None


def _cache_bytes(optimizer: torch.optim.Optimizer) -> int | None:
    """The smallest L2 cache of the GPUs that hold parameters, or None if none does."""
    devices = {p.device for group in optimizer.param_groups for p in group["params"] if p.is_cuda}
    return min((int(torch.cuda.get_device_properties(device).L2_cache_size) for device in devices), default=None)


def _accesses(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, int]]:
    """Each tensor that a step touches: its bytes, and how often each is read or written."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.layout != torch.strided:
                raise RecipeError("a gradient is sparse, so the bytes of a step differ from step to step")
            yield _bytes(parameter), 2
            yield _bytes(parameter.grad), 1
            state = optimizer.state.get(parameter, {})
            for name, accesses in _state_accesses(optimizer, group, state).items():
                # Before the first step there is none; torch makes it like the parameter.
                tensor = state.get(name)
                yield _bytes(tensor if isinstance(tensor, torch.Tensor) else parameter), accesses


def _state_accesses(
    optimizer: torch.optim.Optimizer, group: dict[str, object], state: dict[str, object]
) -> dict[str, int]:
    """How often a step reads and writes each element-wise tensor of the state, read and write counted each."""
    kind = type(optimizer)
    if kind is torch.optim.SGD:
        names = ["momentum_buffer"] if group["momentum"] else []
    elif kind in (torch.optim.Adam, torch.optim.AdamW):
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
    elif kind is torch.optim.RMSprop:
        names = ["square_avg", *(["grad_avg"] if group["centered"] else [])]
        names += ["momentum_buffer"] if group["momentum"] else []
    elif kind is torch.optim.ASGD:
        # The average moves by mu * (parameter - average) with mu = 1 / max(1, step - t0): with mu = 1 it is a copy.
        mu = state.get("mu", 1.0)
        return {"ax": 1 if float(mu) == 1 else 2}  # type: ignore[arg-type]
    elif kind in _STATE_OF:
        names = list(_STATE_OF[kind])
    else:
        raise RecipeError(
            f"the least bytes of a step are not known for {kind.__name__}"
            " (expected one of torch's optimizers that update element by element)"
        )
    return dict.fromkeys(names, 2)


_STATE_OF: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.NAdam: ("exp_avg", "exp_avg_sq"),
    torch.optim.RAdam: ("exp_avg", "exp_avg_sq"),
    torch.optim.Adamax: ("exp_avg", "exp_inf"),
    torch.optim.Adagrad: ("sum",),
    torch.optim.Adadelta: ("square_avg", "acc_delta"),
    torch.optim.Rprop: ("prev", "step_size"),
}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _cuda_block_s(source: torch.Tensor, target: torch.Tensor, copies: int) -> float:
    with torch.cuda.device(source.device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(copies):
            target.copy_(source)
        end.record()
        end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / copies


def _cpu_block_s(source: torch.Tensor, target: torch.Tensor, copies: int) -> float:
    start = synchronized_time()
    for _ in range(copies):
        target.copy_(source)
    return float(synchronized_time() - start) / copies
