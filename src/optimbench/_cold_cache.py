"""Time calls that find the cache filled with something else."""

from collections.abc import Callable

import torch

# A buffer of this many times the L2 leaves nothing of what was in it before.
_L2_SIZES = 4
# Larger than the last-level cache that one thread of any processor we know can fill.
_CPU_FLUSH_BYTES = 512 * 2**20


class ColdCalls:
    """Times calls one by one, each after a buffer larger than the cache has been written.

    On a GPU the time lies between two events on the stream, after the write, so that the launch of the first kernel
    is hidden behind it; gaps between later kernels count.
    """

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer on the device of the step."""
        self._is_cuda = device.type == "cuda"
        size = _CPU_FLUSH_BYTES
        if self._is_cuda:
            size = _L2_SIZES * torch.cuda.get_device_properties(device).L2_cache_size
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)

    def mean_s(self, step: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
        """Seconds a call takes, the mean over so many calls; the clock is used where the device is a CPU."""
        if self._is_cuda:
            return self._mean_of_events_s(step, calls)
        total_s = 0.0
        for _ in range(calls):
            self._buffer.zero_()
            start = clock()
            step()
            total_s += clock() - start
        return total_s / calls

    def _mean_of_events_s(self, step: Callable[[], object], calls: int) -> float:
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]  # type: ignore[no-untyped-call]
        for start, end in pairs:
            self._buffer.zero_()
            start.record()
            step()
            end.record()
        torch.cuda.synchronize()
        return float(sum(start.elapsed_time(end) for start, end in pairs)) / 1e3 / calls
