"""One step, measured."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from optimbench import _format, _stats
from optimbench.errors import InvalidArgumentError
from optimbench.results._base import Result, check_summary, check_times


class Measurement(Result, tag="measurement", frozen=True, kw_only=True):
    """One step, measured: wall time over blocks, host time and kernel time apart.

    Attributes:
        name: What was measured.
        device: "cuda" or "cpu".
        num_threads: CPU threads torch computed with.
        cold_cache: Whether the cache was written over before every call. If not, a call finds what the one before left.
        calls_per_block: Calls that each block time is the mean of.
        block_times_s: Wall seconds per call, one for each block, (n_blocks,).
        median_s: Their median, seconds.
        iqr_s: Their interquartile range, seconds.
        warm_up_calls: Calls made before the blocks, the first one included.
        first_call_s: Wall seconds of the first call; it holds the compile, if there was one.
        warm_up_s: Wall seconds of all warm-up calls together.
        block_host_times_s: Host seconds to launch a call without waiting, one for each block, (n_blocks,);
            None on a CPU, where there is nothing to wait for.
        host_time_s: Their median, seconds, or None.
        kernel_time_s: Seconds the device's kernels and copies ran for each call, or None on a CPU.
        kernel_count: Kernels and copies a call, or None on a CPU.
        peak_extra_bytes: Most bytes of device memory allocated beyond what was held before the call, or None on a CPU.
        least_bytes: Bytes that the step reads and writes at least (`bytes_per_step`). None on a CPU, where a GPU's
            cache could hold half of what is touched, and of what is no optimizer's own step or one of `build_step`.
        warnings: What makes the numbers doubtful, each with its number and the remedy.
        world_size: Processes that took the step together; each time is the longest of theirs.

    Example:
        >>> import statistics
        >>> import optimbench as ob
        >>> measured = ob.measure(lambda: sum(range(999)), name="sum", min_run_time_s=0.01)
        >>> measured.median_s == statistics.median(measured.block_times_s)
        True
        >>> measured.n_blocks == len(measured.block_times_s)
        True
    """

    caption: ClassVar[str] = "Time of one step"

    name: str
    device: str
    num_threads: int
    calls_per_block: int
    block_times_s: tuple[float, ...]
    median_s: float
    iqr_s: float
    warm_up_calls: int
    first_call_s: float
    warm_up_s: float
    block_host_times_s: tuple[float, ...] | None = None
    host_time_s: float | None = None
    kernel_time_s: float | None = None
    kernel_count: float | None = None
    peak_extra_bytes: int | None = None
    least_bytes: int | None = None
    cold_cache: bool = False
    warnings: tuple[str, ...] = ()
    world_size: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be a measurement.

        Raises:
            InvalidArgumentError: A time is negative, not finite or zero where none can be, or the stored
                summary is not that of the stored blocks.
        """
        if not self.name.strip():
            raise InvalidArgumentError("name is empty (expected the name of a step)")
        check_times("block_times_s", self.block_times_s, positive=True)
        check_times("block_host_times_s", self.block_host_times_s or (), positive=True)
        check_times("iqr_s", [self.iqr_s])
        for field in (
            "median_s",
            "first_call_s",
            "warm_up_s",
            "host_time_s",
            "kernel_time_s",
            "kernel_count",
        ):
            value = getattr(self, field)
            check_times(field, [] if value is None else [value], positive=field == "median_s")
        counts = ("num_threads", "calls_per_block", "warm_up_calls", "peak_extra_bytes", "least_bytes", "world_size")
        for field in counts:
            value = getattr(self, field)
            least = 0 if field in ("warm_up_calls", "peak_extra_bytes") else 1
            if value is not None and value < least:
                raise InvalidArgumentError(f"{field} is {value} (expected at least {least})")
        if not self.block_times_s:
            raise InvalidArgumentError("block_times_s is empty (expected at least one block)")
        check_summary("median_s", self.median_s, _stats.median(self.block_times_s))
        check_summary("iqr_s", self.iqr_s, _stats.interquartile_range(self.block_times_s))
        if (self.host_time_s is None) != (self.block_host_times_s is None):
            raise InvalidArgumentError("host_time_s and block_host_times_s go together: give both or neither")
        if self.host_time_s is not None and self.block_host_times_s is not None:
            check_summary("host_time_s", self.host_time_s, _stats.median(self.block_host_times_s))

    @property
    def n_blocks(self) -> int:
        """How many blocks were timed."""
        return len(self.block_times_s)

    @property
    def n_outliers(self) -> int:
        """How many blocks lie outside Tukey's fences; they count in the median like all others.

        The fences stand 1.5 interquartile ranges outside the quartiles (Tukey, Exploratory Data Analysis, 1977).
        """
        return _stats.count_outliers(self.block_times_s)

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """One row, with the columns of `Comparison` that need no second step."""
        return measurement_table([self])

    def notes(self) -> list[str]:
        """How it was timed, and the warnings."""
        return [how_timed([self]), *self.warnings]


def measurement_table(rows: Sequence[Measurement]) -> tuple[list[str], list[list[str]]]:
    """The columns that measurements have in common; those which are empty on a CPU are left out there."""
    columns = [_format.time_column("wall", [row.median_s for row in rows])]
    unit = columns[0][0].partition(" ")[2]
    size_s = _format.time_unit([row.median_s for row in rows])[0]
    columns.append((f"IQR {unit}", [_format.significant(row.iqr_s / size_s, 2) for row in rows]))
    if any(row.kernel_time_s is not None for row in rows):
        columns.append(_format.time_column("host", [row.host_time_s for row in rows]))
        columns.append(_format.time_column("kernels", [row.kernel_time_s for row in rows]))
        columns.append(("kernels a step", [_count(row.kernel_count) for row in rows]))
        extra = [
            _format.MISSING if r.peak_extra_bytes is None else _format.byte_count(r.peak_extra_bytes) for r in rows
        ]
        columns.append(("extra memory", extra))
    columns.append(("first call", [_format.seconds(row.first_call_s) for row in rows]))
    headers = ["step", *[title for title, _ in columns]]
    return headers, [[row.name, *[cells[i] for _, cells in columns]] for i, row in enumerate(rows)]


def how_timed(rows: Sequence[Measurement]) -> str:
    """One sentence: device, threads, blocks, calls and outliers."""
    if not rows:
        return ""
    blocks = _range(row.n_blocks for row in rows)
    calls = _range(row.calls_per_block for row in rows)
    outliers = sum(row.n_outliers for row in rows)
    ranks = rows[0].world_size
    slowest = f" of the slowest of {ranks} ranks" if ranks > 1 else ""
    return (
        f"Medians{slowest} on {rows[0].device} with {rows[0].num_threads} CPU threads:"
        f" {blocks} blocks of {calls} calls; {outliers} outlying blocks, none dropped."
        f"{' Cold cache.' if rows[0].cold_cache else ''}"
    )


def _count(value: float | None) -> str:
    return _format.MISSING if value is None else f"{value:.1f}".removesuffix(".0")


def _range(counts: Iterable[int]) -> str:
    values = sorted(set(counts))
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
