"""Steps measured in the same rounds, each against a baseline."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from optimbench import _format, _stats
from optimbench.errors import InvalidArgumentError
from optimbench.results._base import Result, check_times
from optimbench.results._measurement import Measurement, how_timed, measurement_table

# Differences below 1 % are not told: where two equal tensors lie in memory can make as much.
_LEAST_DIFFERENCE = 0.01


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster than the baseline, with its interval: baseline time over this time.

    The interval of wall and host times is that of the percentile bootstrap over the rounds (Efron and Tibshirani, An
    Introduction to the Bootstrap, 1993); kernel times come from one profile and have a fixed margin.

    Attributes:
        value: The median over the rounds of the ratio within a round; above one is faster.
        low: Lower bound of the interval.
        high: Upper bound of the interval.

    Example:
        >>> import optimbench as ob
        >>> ratio = ob.Ratio(value=1.9, low=1.85, high=1.95)
        >>> ratio.verdict, ratio.interval
        ('1.90x faster', '[1.85, 1.95]')
        >>> ob.Ratio(value=1.02, low=0.97, high=1.06).verdict
        'no clear difference'
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse a ratio outside its own interval.

        Raises:
            InvalidArgumentError: A bound is not positive and finite, or they are out of order.
        """
        check_times("ratio", [self.low, self.value, self.high], positive=True)
        if not self.low <= self.value <= self.high:
            raise InvalidArgumentError(f"ratio {self.value} lies outside its interval [{self.low}, {self.high}]")

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval lies above one by more than the smallest difference that is told."""
        return self.low > 1 + _LEAST_DIFFERENCE

    @property
    def is_slower(self) -> bool:
        """Whether the whole interval lies below one by more than the smallest difference that is told."""
        return self.high < 1 / (1 + _LEAST_DIFFERENCE)

    @property
    def verdict(self) -> str:
        """The interval in words, for example "1.90x faster", "1.20x slower" or "no clear difference"."""
        if self.is_faster:
            return f"{self.value:.2f}x faster"
        return f"{1 / self.value:.2f}x slower" if self.is_slower else "no clear difference"

    @property
    def interval(self) -> str:
        """The bounds in the direction of the verdict, for example "[1.85, 1.95]"."""
        low, high = (1 / self.high, 1 / self.low) if self.is_slower else (self.low, self.high)
        return f"[{low:.2f}, {high:.2f}]"


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """One step against the baseline: wall, host and kernel time each with its own ratio.

    Attributes:
        wall: Ratio of the wall times.
        host: Ratio of the host times, or None on a CPU.
        kernel: Ratio of the kernel times, or None on a CPU.

    Example:
        >>> import optimbench as ob
        >>> speedup = ob.Speedup(wall=ob.Ratio(value=1.9, low=1.85, high=1.95))
        >>> speedup.wall.is_faster, speedup.kernel
        (True, None)
    """

    wall: Ratio
    host: Ratio | None = None
    kernel: Ratio | None = None


class NotMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A step without a time, and why: it raised, crashed, fell back to eager or gave another result.

    Attributes:
        name: The step.
        outcome: One or two words, for example "failed" or "not compiled".
        reason: The first line of what went wrong, in words.

    Example:
        >>> import optimbench as ob
        >>> steps = {"sum": lambda: sum(range(999)), "broken": lambda: 1 / 0}
        >>> (missing,) = ob.compare(steps, baseline="sum", min_run_time_s=0.01).not_measured
        >>> missing.name, missing.outcome
        ('broken', 'failed')
    """

    name: str
    outcome: str
    reason: str


class Comparison(Result, tag="comparison", frozen=True, kw_only=True):
    """Steps measured in the same rounds, each against the baseline.

    Attributes:
        baseline: The name of the row that the others are compared with.
        rows: The measured steps, the baseline among them.
        speedups: One for each row, in their order; the baseline's own is one.
        not_measured: Steps that gave no time, and why.
        seed: The seed of the order in which steps were measured within each round.

    Example:
        >>> import optimbench as ob
        >>> steps = {"short": lambda: sum(range(99)), "long": lambda: sum(range(9999))}
        >>> comparison = ob.compare(steps, baseline="long", min_run_time_s=0.01)
        >>> comparison.fastest()
        ('short',)
        >>> comparison.speedup("long").wall.value  # The baseline against itself.
        1.0
    """

    caption: ClassVar[str] = "Steps compared"

    baseline: str
    rows: tuple[Measurement, ...]
    speedups: tuple[Speedup, ...]
    not_measured: tuple[NotMeasured, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a comparison whose parts do not belong together.

        Raises:
            InvalidArgumentError: Names are not unique, the baseline is missing, or rows and speed-ups differ
                in number.
        """
        names = [row.name for row in self.rows] + [step.name for step in self.not_measured]
        if len(set(names)) != len(names):
            raise InvalidArgumentError(f"rows have duplicate names: {names}")
        if self.baseline not in [row.name for row in self.rows]:
            raise InvalidArgumentError(f"baseline {self.baseline!r} is not among the rows {names}")
        if len(self.speedups) != len(self.rows):
            raise InvalidArgumentError(f"{len(self.speedups)} speedups for {len(self.rows)} rows")

    def row(self, name: str) -> Measurement:
        """The measurement of one step.

        Args:
            name: Of the step.

        Raises:
            InvalidArgumentError: No row has this name.
        """
        return self.rows[self._index(name)]

    def speedup(self, name: str) -> Speedup:
        """The ratios of one step.

        Args:
            name: Of the step.

        Raises:
            InvalidArgumentError: No row has this name.
        """
        return self.speedups[self._index(name)]

    def conclusion(self, name: str) -> str:
        """What may be said of one step against the baseline: wall, host and kernel time, one sentence.

        Args:
            name: Of the step.

        Raises:
            InvalidArgumentError: No row has this name.
        """
        speedup = self.speedup(name)
        parts = [("wall time", speedup.wall), ("host time", speedup.host), ("kernel time", speedup.kernel)]
        said = "; ".join(f"{what}: {ratio.verdict}" for what, ratio in parts if ratio is not None)
        return f"{name} against {self.baseline}: {said}."

    def break_even_steps(self, name: str) -> float | None:
        """After how many steps the first calls of a step have paid for themselves against the baseline.

        The extra seconds of its warm-up calls, over the seconds that each later call saves.

        Args:
            name: Of the step.

        Returns:
            A number of steps, or None where the step is not clearly faster and so never pays.

        Raises:
            InvalidArgumentError: No row has this name.
        """
        row, base = self.row(name), self.row(self.baseline)
        if not self.speedup(name).wall.is_faster:
            return None
        extra_s = row.warm_up_s - row.warm_up_calls * row.median_s
        return max(0.0, extra_s) / (base.median_s - row.median_s)

    def fastest(self, among: Sequence[str] | None = None) -> tuple[str, ...]:
        """The steps that none is clearly faster than: that of the least median, and all that may be as fast.

        Read from the interval of the ratio to that of the least median, as verdicts are; which step the baseline is
        does not matter.

        Args:
            among: Only these steps, those that were not measured left out; None: all.

        Returns:
            Their names, the least median first; none if none of `among` was measured.
        """
        rows = sorted((row for row in self.rows if among is None or row.name in among), key=lambda row: row.median_s)
        return tuple(row.name for index, row in enumerate(rows) if index == 0 or not _ratio(rows[0], row).is_slower)

    @property
    def finding(self) -> str:
        """The fastest steps and by how much the first of them beats the baseline, as the title of a figure."""
        fastest = self.fastest()
        if self.baseline in fastest:
            return f"Nothing is clearly faster than {self.baseline}"
        return f"{' or '.join(fastest)} is fastest: {self.speedup(fastest[0]).wall.verdict} than {self.baseline}"

    def headers_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """A row a step, and one for each that was not measured."""
        headers, rows = measurement_table(self.rows)
        for cells, row, speedup in zip(rows, self.rows, self.speedups, strict=True):
            is_baseline = row.name == self.baseline
            cells.append("baseline" if is_baseline else f"{speedup.wall.verdict} {speedup.wall.interval}")
        for step in self.not_measured:
            rows.append([step.name, *[_format.MISSING] * (len(headers) - 1), step.outcome])
        return [*headers, "wall against baseline"], rows

    def notes(self) -> list[str]:
        """How it was timed, what was not measured and why, and each row's warnings."""
        failed = [f"{step.name}: {step.outcome}. {step.reason}" for step in self.not_measured]
        rows_of: dict[str, list[str]] = {}
        for row in self.rows:
            for warning in row.warnings:
                rows_of.setdefault(warning, []).append(row.name)
        warned = [
            f"{'all rows' if len(names) == len(self.rows) > 1 else ', '.join(names)}: {warning}"
            for warning, names in rows_of.items()
        ]
        interval = f"Intervals hold {_stats.CONFIDENCE:.0%} of the bootstrap."
        return [f"{how_timed(self.rows)} {interval}", *failed, *warned]

    def _index(self, name: str) -> int:
        names = [row.name for row in self.rows]
        if name not in names:
            raise InvalidArgumentError(f"no row is named {name!r} (expected one of {names})")
        return names.index(name)


def _ratio(base: Measurement, row: Measurement) -> Ratio:
    value, low, high = _stats.ratio_interval(base.block_times_s, row.block_times_s)
    return Ratio(value=value, low=low, high=high)
