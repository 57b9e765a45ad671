"""How busy other processes keep the CPU, from /proc/stat; unknown where there is none."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_STAT = Path("/proc/stat")
# Fields of /proc/stat's first line that are time without work: idle and waiting for input or output (proc(5)).
_IDLE_FIELDS = (3, 4)
# The first eight fields are disjoint; the guest fields after them are already counted in the first two.
_FIELDS = 8


class LoadMeter:
    """Measures the share of the CPU that processes other than this one used since it was made."""

    def __init__(self, own_time: Callable[[], float] = time.process_time) -> None:
        """Start the measurement.

        Args:
            own_time: Seconds of processor time that are this process's own, or those of all that measure together.
        """
        self._busy_s = _busy_s()
        self._own_time = own_time
        self._own_s = own_time()
        self._start_s = time.monotonic()

    def others_share(self) -> float | None:
        """The share of all processors' time that others used since the start, or None where it cannot be told."""
        busy_s, elapsed_s = _busy_s(), time.monotonic() - self._start_s
        if busy_s is None or self._busy_s is None or elapsed_s <= 0:
            return None
        others_s = busy_s - self._busy_s - (self._own_time() - self._own_s)
        return max(0.0, others_s / elapsed_s / (os.cpu_count() or 1))


def _busy_s() -> float | None:
    if not _STAT.exists():
        return None
    ticks = [int(field) for field in _STAT.read_text().split("\n", 1)[0].split()[1 : 1 + _FIELDS]]
    busy = sum(ticks) - sum(ticks[field] for field in _IDLE_FIELDS)
    return busy / os.sysconf("SC_CLK_TCK")
