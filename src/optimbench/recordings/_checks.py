"""What no value in a recording may be, whatever its field: checked before the types are looked at."""

import datetime
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence

from optimbench import _stats
from optimbench.errors import RecordingError
from optimbench.results import Bandwidth, Comparison, Measurement, Ratio, Result

# The deepest value of a true recording lies at seven: results, script, variable, rows, row, block_times_s, time.
_MAX_DEPTH = 10
_MAX_ITEMS = 10_000
_MAX_STRING = 10_000
_MAX_INTEGER = 2**63 - 1
# Names of scripts and variables become file names and anchors.
_MAX_NAME = 100
# A step or a compile beyond four months or below a picosecond was not measured.
_MAX_TIME_S = 1e7
_MIN_TIME_S = 1e-12
# A contributor's clock may be in another time zone or wrong by some minutes.
_CLOCK_ERROR = datetime.timedelta(days=1)
# No memory of today moves a tenth of this.
_MAX_BYTES_PER_S = 1e14
# How far below the memory floor a time may lie: a cache serves less than half the bytes where least_bytes is given, and
# the bandwidth of reads and writes is within a tenth of a copy's.
_FLOOR_MARGIN = 2.2
# Rounding in the encoding; the bounds of an interval also depend on the random numbers of a numpy release.
_ROUNDING = 1e-9

_SCRIPT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# An absolute path, a home folder or a file's address, at the start of a word. Relative paths are fine.
_PATH = re.compile(
    r"(?:^|(?<=[\s\"'`(\[{<=:,;]))(?:/(?:[\w.+@-]+/)+[\w.+@-]*|~(?:[a-z][\w.-]*)?/|[A-Za-z]:[\\/]|\\\\\w|file:)"
)
# Invisible characters that change how the text around them is read.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def check_name(name: str, where: str) -> None:
    """Refuse what is no plain name of a script or a variable.

    Raises:
        RecordingError: The name is empty, too long, or holds more than letters, digits and underscores.
    """
    if len(name) > _MAX_NAME or not _SCRIPT.fullmatch(name):
        raise RecordingError(
            f"{where}: the name {name[:40]!a} cannot be used (expected at most {_MAX_NAME} ASCII letters, digits and"
            " underscores, a letter first)"
        )


def check_values(value: object, where: str = "", depth: int = 0) -> None:
    """Look at every string and number below a value.

    Raises:
        RecordingError: The place and what is wrong there.
    """
    if depth > _MAX_DEPTH:
        raise RecordingError(f"{where}: nested too deep (expected at most {_MAX_DEPTH} levels)")
    if isinstance(value, dict | list) and len(value) > _MAX_ITEMS:
        raise RecordingError(f"{where or 'the file'}: {len(value)} items (expected at most {_MAX_ITEMS})")
    if isinstance(value, dict):
        for key, item in value.items():
            check_name(key, where or "the file")
            check_values(item, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_values(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, str):
        _check_string(value, where)
    elif isinstance(value, int | float):
        _check_number(value, where)


def _check_string(value: str, where: str) -> None:
    if len(value) > _MAX_STRING:
        raise RecordingError(f"{where}: {len(value)} characters (expected at most {_MAX_STRING})")
    # Most texts are printable as a whole, which is known at once.
    for character in "" if value.isprintable() else value:
        if unicodedata.category(character) in _INVISIBLE and character not in "\n\t":
            raise RecordingError(f"{where}: holds the control character U+{ord(character):04X}")
    found = _PATH.search(value)
    if found:
        raise RecordingError(f"{where}: holds a path of a machine, {found[0][:40]!a}")


def _check_number(value: float, where: str) -> None:
    if type(value) is int and abs(value) > _MAX_INTEGER:
        raise RecordingError(f"{where}: is too large an integer (expected at most {_MAX_INTEGER})")
    if not math.isfinite(value):
        raise RecordingError(f"{where}: is {value} (expected a finite number)")
    field = re.sub(r"(\[\d+\])+$", "", where).rpartition(".")[2]
    # Only a table's cells and a seed can be negative.
    if value < 0 and field not in ("cells", "seed"):
        raise RecordingError(f"{where}: is {value} (expected no negative number)")
    # The spread of nearly equal times can be that of rounding.
    least_s = 0 if field == "iqr_s" else _MIN_TIME_S
    if field.endswith("_s") and value and not least_s <= value <= _MAX_TIME_S:
        raise RecordingError(f"{where}: is {value} s (expected 0, or {_MIN_TIME_S:g} to {_MAX_TIME_S:g} s)")


def check_date(date: str, where: str) -> None:
    """Refuse a date that is none, has no time zone or lies in the future.

    Raises:
        RecordingError: The place and the date.
    """
    try:
        when = datetime.datetime.fromisoformat(date)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise RecordingError(f"{where}: is {date[:40]!a} (expected a date, time and time zone as in ISO 8601)")
    if when > datetime.datetime.now(datetime.UTC) + _CLOCK_ERROR:
        raise RecordingError(f"{where}: {date} lies in the future")


def check_floors(results: Mapping[str, Result]) -> None:
    """Refuse bandwidths that no memory has, and GPU times that are too short for the bytes that had to be moved.

    The floor is the step's least bytes over the fastest copy in the recording; without a copy there is none.

    Args:
        results: All results of a recording, by their place.

    Raises:
        RecordingError: The place, the value and what it must be at least.
    """
    fastest = 0.0
    for where, result in results.items():
        if isinstance(result, Bandwidth):
            if result.bytes_per_s > _MAX_BYTES_PER_S:
                raise RecordingError(
                    f"{where}: {result.bytes_per_s:.3g} bytes/s (expected at most {_MAX_BYTES_PER_S:g})"
                )
            if result.device == "cuda":
                fastest = max(fastest, result.bytes_per_s)
    for where, result in results.items():
        if not isinstance(result, Measurement) or result.least_bytes is None or not fastest:
            continue
        least_s = result.least_bytes / fastest / _FLOOR_MARGIN
        for field in ("median_s", "kernel_time_s"):
            time_s = getattr(result, field)
            if time_s is not None and time_s < least_s:
                raise RecordingError(
                    f"{where}.{field}: is {time_s:.4g} s, too short to move {result.least_bytes} bytes at the"
                    f" {fastest / 1e9:.4g} GB/s of this device's copies (expected at least {least_s:.4g} s)"
                )


def check_comparison(comparison: Comparison, where: str) -> None:
    """Refuse speed-ups that the rows do not give.

    Raises:
        RecordingError: The place, the stored ratio and what the rows give.
    """
    base = comparison.row(comparison.baseline)
    for index, (row, speedup) in enumerate(zip(comparison.rows, comparison.speedups, strict=True)):
        here = f"{where}.speedups[{index}]"
        _check_ratio(speedup.wall, base.block_times_s, row.block_times_s, f"{here}.wall")
        if speedup.host is not None:
            _check_ratio(speedup.host, base.block_host_times_s, row.block_host_times_s, f"{here}.host")
        if speedup.kernel is not None:
            _check_ratio(speedup.kernel, _kernel(base), _kernel(row), f"{here}.kernel")


def _kernel(row: Measurement) -> tuple[float, ...] | None:
    return None if row.kernel_time_s is None else (row.kernel_time_s,)


def _check_ratio(
    stored: Ratio, base_times_s: Sequence[float] | None, times_s: Sequence[float] | None, where: str
) -> None:
    if not base_times_s or not times_s or len(base_times_s) != len(times_s):
        raise RecordingError(f"{where}: a ratio without times in the same rounds")
    ratios = [base / time for base, time in zip(base_times_s, times_s, strict=True) if time]
    if len(ratios) != len(times_s):
        raise RecordingError(f"{where}: a ratio with a time of zero")
    computed = _stats.median(ratios)
    if not math.isclose(stored.value, computed, rel_tol=_ROUNDING):
        raise RecordingError(f"{where}.value: is {stored.value}, but the rows give {computed}")
    # Every resample of the rounds has its median among them; one profile has a fixed margin instead.
    if len(ratios) > 1 and not (
        min(ratios) * (1 - _ROUNDING) <= stored.low and stored.high <= max(ratios) * (1 + _ROUNDING)
    ):
        raise RecordingError(f"{where}: the interval [{stored.low}, {stored.high}] lies beyond all rounds")
