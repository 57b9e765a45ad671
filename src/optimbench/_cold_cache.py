"""Time calls that find the cache filled with something else."""

import time
from collections.abc import Callable

import torch

# A buffer of this many times the L2 leaves nothing of what was in it before.
_L2_SIZES = 4
# Larger than the last-level cache that one thread of any processor we know can fill.
_CPU_FLUSH_BYTES = 512 * 2**20
# How many times the host's launching of a step the device is kept busy at first, and for how long at most: a step that
# waits for the device would wait for this too.
_LAUNCH_TIMES = 2
_LONGEST_SPIN_S = 0.05


class ColdCalls:
    """Times calls one by one, each after a buffer larger than the cache has been written.

    On a GPU the time lies between two events on the stream. The device is kept busy before them for as long as the host
    needs to launch the step, so that what is timed is the device's part: its kernels, back to back. Where the device
    came to the first event before all was launched, the call does not count, and where that is so of most calls, the
    device is kept busy for longer.
    """

    def __init__(self, device: torch.device) -> None:
        """Allocate the buffer on the device of the step."""
        self._is_cuda = device.type == "cuda"
        size = _CPU_FLUSH_BYTES
        if self._is_cuda:
            size = _L2_SIZES * torch.cuda.get_device_properties(device).L2_cache_size
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)
        self._cycles = self._most_cycles = 0

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
        if not self._cycles:
            self._cycles, self._most_cycles = _cycles_to_launch(step)
        while True:
            pairs = [_two_events() for _ in range(calls)]
            in_time = []
            for start, end in pairs:
                _spin(self._cycles)
                self._buffer.zero_()
                start.record()
                step()
                end.record()
                in_time.append(not start.query())  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            if sum(in_time) > calls / 2 or self._cycles >= self._most_cycles:
                break
            self._cycles = min(2 * self._cycles, self._most_cycles)
        # A step that waits for the device is never launched in time.
        counted = [pair for pair, counts in zip(pairs, in_time, strict=True) if counts or not any(in_time)]
        return float(sum(start.elapsed_time(end) for start, end in counted)) / 1e3 / len(counted)


def _cycles_to_launch(step: Callable[[], object]) -> tuple[int, int]:
    """Cycles of the device in which the host launches the step, with room for a slower launch; and the most."""
    torch.cuda.synchronize()
    start_s = time.perf_counter()
    step()
    launch_s = time.perf_counter() - start_s
    start, end = _two_events()
    cycles = 10**6
    start.record()
    _spin(cycles)
    end.record()
    torch.cuda.synchronize()
    cycles_in_a_second = cycles / (start.elapsed_time(end) / 1e3)
    most = int(_LONGEST_SPIN_S * cycles_in_a_second)
    return min(1 + int(_LAUNCH_TIMES * launch_s * cycles_in_a_second), most), most


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _two_events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
