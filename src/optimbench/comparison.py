"""The arithmetic of a comparison: plain numbers in, ratios with intervals out. No clock and no torch."""

from collections.abc import Sequence

from optimbench import _stats
from optimbench.errors import InvalidArgumentError
from optimbench.results import Comparison, Measurement, NotMeasured, Ratio, Speedup

__all__ = ["compare_measurements", "kernel_ratio"]

# The profiler's kernel times repeat within 1 % from run to run; a difference of twice that is one.
_KERNEL_MARGIN = 0.02


def compare_measurements(
    rows: Sequence[Measurement],
    *,
    baseline: str,
    not_measured: Sequence[NotMeasured] = (),
    seed: int = 0,
) -> Comparison:
    """Compare measurements whose blocks were taken in the same rounds.

    The median over the rounds of the ratio within a round, with its bootstrap interval. Kernel times come from
    one profile and get a fixed margin of 2 %.

    Args:
        rows: The measurements, all with the same number of blocks.
        baseline: The name of the row the others are compared with.
        not_measured: Steps without a time, with the reason.
        seed: The seed of the order within the rounds, to be kept with the result.

    Raises:
        InvalidArgumentError: The baseline is missing, names are not unique, or the numbers of blocks differ.
    """
    base = next((row for row in rows if row.name == baseline), None)
    if base is None:
        names = [row.name for row in rows]
        raise InvalidArgumentError(f"baseline {baseline!r} was not measured (expected one of {names})")
    for row in rows:
        if row.n_blocks != base.n_blocks:
            raise InvalidArgumentError(
                f"{row.name!r} has {row.n_blocks} blocks and the baseline {base.n_blocks}:"
                " rounds can only be paired where the numbers are equal"
            )
    return Comparison(
        baseline=baseline,
        rows=tuple(rows),
        speedups=tuple(_speedup(base, row) for row in rows),
        not_measured=tuple(not_measured),
        seed=seed,
    )


def kernel_ratio(base_time_s: float, time_s: float) -> Ratio:
    """The ratio of two kernel times, each from one profile, with a fixed margin of 2 %."""
    value = base_time_s / time_s
    return Ratio(value=value, low=value / (1 + _KERNEL_MARGIN), high=value * (1 + _KERNEL_MARGIN))


def _speedup(base: Measurement, row: Measurement) -> Speedup:
    host = kernel = None
    if base.block_host_times_s is not None and row.block_host_times_s is not None:
        host = _ratio(base.block_host_times_s, row.block_host_times_s)
    if base.kernel_time_s and row.kernel_time_s:
        kernel = kernel_ratio(base.kernel_time_s, row.kernel_time_s)
    return Speedup(wall=_ratio(base.block_times_s, row.block_times_s), host=host, kernel=kernel)


def _ratio(base_times_s: Sequence[float], times_s: Sequence[float]) -> Ratio:
    value, low, high = _stats.ratio_interval(base_times_s, times_s)
    return Ratio(value=value, low=low, high=high)
