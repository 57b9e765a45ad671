"""What changed from one recording of a device to the next, in words."""

from collections.abc import Iterator, Sequence

import msgspec

from optimbench import _format, _stats
from optimbench.comparison import kernel_ratio
from optimbench.environment import Environment
from optimbench.recordings._recording import Recording
from optimbench.results import Bandwidth, Comparison, Measurement, Ratio, RecompileLog, Result, Table

_VERSIONS = ("device_name", "driver", "torch", "cuda", "triton", "python", "cpu", "cpu_count", "os", "optimbench")
_RANKS = ("world_size", "backend")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two recordings.

    Attributes:
        where: The script, with the variable and the row where it is about one.
        said: The difference in words.
        ratio: Old time over new time with its interval, or None where it is not about a time.
        is_steady: Whether it is about a time that repeats from run to run: of kernels, of copies, or on a CPU. The wall
            and host times of a GPU's step depend on the host and wander.
    """

    where: str
    said: str
    ratio: Ratio | None = None
    is_steady: bool = True

    def is_slower_than(self, factor: float) -> bool:
        """Whether the new time is slower by more than a factor, the whole interval of it."""
        return self.ratio is not None and 1 / self.ratio.high > factor

    def __str__(self) -> str:
        return f"{self.where}: {self.said}"


def differences(old: Recording, new: Recording) -> list[Difference]:
    """Compare two recordings, script by script and result by result.

    A time is "within noise" where the interval of its ratio holds one. The interval knows the noise within each of the
    two runs, not what differs between two days.
    """
    found = []
    for script in sorted(old.results.keys() | new.results.keys()):
        if script not in old.results or script not in new.results:
            found.append(Difference(where=script, said="new" if script in new.results else "gone"))
            continue
        found += _changed_conditions(script, old, new)
        before, after = old.results[script], new.results[script]
        for variable in sorted(before.keys() | after.keys()):
            where = f"{script}.{variable}"
            if variable not in before or variable not in after:
                found.append(Difference(where=where, said="new" if variable in after else "gone"))
            else:
                found += _changed_result(where, before[variable], after[variable])
    return found


def _changed_conditions(script: str, old: Recording, new: Recording) -> Iterator[Difference]:
    before, after = old.scripts[script], new.scripts[script]
    if before.source_sha256 != after.source_sha256:
        yield Difference(where=script, said="the script has changed")
    for name in _VERSIONS + _RANKS:
        yield from _changed(script, name, getattr(before.environment, name), getattr(after.environment, name))


def _changed_result(where: str, old: Result, new: Result) -> Iterator[Difference]:
    if isinstance(old, Comparison) and isinstance(new, Comparison):
        yield from _changed_rows(where, old, new)
    elif isinstance(old, Measurement) and isinstance(new, Measurement):
        yield from _changed_measurement(where, old, new)
    elif isinstance(old, Bandwidth) and isinstance(new, Bandwidth):
        yield _changed_time(where, "time of the copy", old.block_times_s, new.block_times_s)
    elif isinstance(old, RecompileLog) and isinstance(new, RecompileLog):
        for name in ("n_compiles", "n_recompiles", "limit_hit", "eager_since_call"):
            yield from _changed(where, name, getattr(old, name), getattr(new, name))
    elif isinstance(old, Table) and isinstance(new, Table):
        n_changed = sum(a != b for a, b in zip(old.cells, new.cells, strict=False)) + abs(
            len(old.cells) - len(new.cells)
        )
        if n_changed or old.columns != new.columns:
            yield Difference(where=where, said=f"{n_changed} of {len(new.cells)} rows differ")
    elif type(old) is not type(new):
        yield Difference(where=where, said=f"type {type(old).__name__} -> {type(new).__name__}")
    elif not isinstance(old, Environment):  # Its changes are told for the script.
        yield from _changed_fields(where, old, new)


def _changed_fields(where: str, old: Result, new: Result) -> Iterator[Difference]:
    for field in msgspec.structs.fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if isinstance(before, Result) and isinstance(after, Result):
            yield from _changed_result(f"{where}.{field.name}", before, after)
        elif isinstance(before, str | int | float):
            yield from _changed(where, field.name, before, after)


def _changed_rows(where: str, old: Comparison, new: Comparison) -> Iterator[Difference]:
    before, after = ({row.name: row for row in comparison.rows} for comparison in (old, new))
    for name in [*after, *[name for name in before if name not in after]]:
        here = f"{where}[{name}]"
        if name not in before or name not in after:
            yield Difference(where=here, said="now measured" if name in after else "no longer measured")
        else:
            yield from _changed_measurement(here, before[name], after[name])


def _changed_measurement(where: str, old: Measurement, new: Measurement) -> Iterator[Difference]:
    is_steady = new.device == "cpu"
    yield _changed_time(where, "wall time", old.block_times_s, new.block_times_s, is_steady=is_steady)
    if old.block_host_times_s and new.block_host_times_s:
        yield _changed_time(where, "host time", old.block_host_times_s, new.block_host_times_s, is_steady=is_steady)
    if old.kernel_time_s and new.kernel_time_s:
        ratio = kernel_ratio(old.kernel_time_s, new.kernel_time_s)
        yield _said(where, "kernel time", old.kernel_time_s, new.kernel_time_s, ratio, is_steady=True)
    yield from _changed(where, "kernel_count", old.kernel_count, new.kernel_count)
    yield from _changed(where, "peak_extra_bytes", old.peak_extra_bytes, new.peak_extra_bytes)


def _changed_time(
    where: str, what: str, old_s: Sequence[float], new_s: Sequence[float], *, is_steady: bool = True
) -> Difference:
    value, low, high = _stats.unpaired_ratio_interval(old_s, new_s)
    ratio = Ratio(value=value, low=low, high=high)
    return _said(where, what, _stats.median(old_s), _stats.median(new_s), ratio, is_steady=is_steady)


def _said(where: str, what: str, old_s: float, new_s: float, ratio: Ratio, *, is_steady: bool) -> Difference:
    factor = f"{ratio.value:.2f}x faster" if ratio.value >= 1 else f"{1 / ratio.value:.2f}x slower"
    noise = ratio.interval if ratio.is_faster or ratio.is_slower else "(within noise)"
    times = f"{_format.seconds(old_s)} -> {_format.seconds(new_s)}"
    return Difference(where=where, said=f"{what} {times}, {factor} {noise}", ratio=ratio, is_steady=is_steady)


def _changed(where: str, name: str, old: object, new: object) -> Iterator[Difference]:
    if old != new:
        yield Difference(where=where, said=f"{name} {old} -> {new}")
