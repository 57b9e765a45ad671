"""Results as pictures: each function draws on the given axes and returns them.

Text and lines follow matplotlib's settings, so that a figure fits a light and a dark page; the other colours can be
seen on both. None carries a meaning alone: bars and points are labelled, or have a marker of their own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from optimbench import _format
from optimbench.errors import InvalidArgumentError
from optimbench.results import Bandwidth, Comparison, Measurement, RecompileLog, Result

__all__ = ["describe", "draw", "draw_devices"]

# Each has a contrast of at least 3 to 1 to white and to the dark theme's background; a test computes it.
COLOURS = ("#2f81c7", "#c96a12", "#2b9169", "#a760c0", "#b3862b", "#7a828c")
MARKERS = "osD^vP"
# Beyond this ratio the shortest bar of a linear axis can no longer be seen.
_LINEAR_UP_TO = 30
_LONGEST_LABEL = 36


def draw(result: Result, ax: Axes) -> Axes:
    """Draw one result: a comparison or a measurement as times, a recompile log as compiles by call.

    Args:
        result: A comparison, measurement, recompile log or bandwidth.
        ax: Where to draw.

    Returns:
        The same axes.

    Raises:
        InvalidArgumentError: There is no picture of this type of result, or nothing in it to draw.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import optimbench as ob
        >>> from optimbench import figures
        >>> bandwidth = ob.Bandwidth(device="cpu", moved_bytes=10**9, block_times_s=(0.1,), median_s=0.1)
        >>> figures.draw(bandwidth, Figure().subplots()).get_xlabel()
        'GB/s'
    """
    if isinstance(result, Comparison):
        _draw_times(result.rows, ax)
    elif isinstance(result, Measurement):
        _draw_times([result], ax)
    elif isinstance(result, RecompileLog):
        _draw_compiles(result, ax)
    elif isinstance(result, Bandwidth):
        _draw_values(["copy"], [result.bytes_per_s / 1e9], "GB/s", ax)
    else:
        raise InvalidArgumentError(f"there is no picture of a {type(result).__name__}: print it instead")
    return ax


def draw_devices(results: Mapping[str, Result], ax: Axes) -> Axes:
    """Draw the same experiment on several devices: speed-ups with their intervals, or one value each.

    Args:
        results: Results of one type by the device's label.
        ax: Where to draw.

    Raises:
        InvalidArgumentError: The results differ in type, or there is no picture of their type.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import optimbench as ob
        >>> from optimbench import figures
        >>> bandwidth = ob.Bandwidth(device="cpu", moved_bytes=10**9, block_times_s=(0.1,), median_s=0.1)
        >>> ax = figures.draw_devices({"this machine": bandwidth, "another": bandwidth}, Figure().subplots())
        >>> ax.get_xlabel()
        'copy bandwidth [GB/s]'
    """
    kinds = {type(result) for result in results.values()}
    if len(kinds) != 1:
        raise InvalidArgumentError(f"results of {len(kinds)} types (expected one)")
    compared = {label: result for label, result in results.items() if isinstance(result, Comparison)}
    measured = {label: result.median_s for label, result in results.items() if isinstance(result, Measurement)}
    copied = {label: result.bytes_per_s / 1e9 for label, result in results.items() if isinstance(result, Bandwidth)}
    counted = {label: float(result.n_compiles) for label, result in results.items() if isinstance(result, RecompileLog)}
    if compared:
        _draw_speedups(compared, ax)
    elif measured:
        size_s, unit = _format.time_unit(list(measured.values()))
        _draw_values(list(measured), [value / size_s for value in measured.values()], f"wall time [{unit}]", ax)
    elif copied:
        _draw_values(list(copied), list(copied.values()), "copy bandwidth [GB/s]", ax)
    elif counted:
        _draw_values(list(counted), list(counted.values()), "compiles", ax)
    else:
        raise InvalidArgumentError(f"there is no picture of a {kinds.pop().__name__}: print it instead")
    return ax


def describe(result: Result) -> str:
    """What the picture of a result shows, in words, for readers who cannot see it.

    Args:
        result: As in `draw`; of other results it gives the title.

    Example:
        >>> import optimbench as ob
        >>> from optimbench import figures
        >>> bandwidth = ob.Bandwidth(device="cpu", moved_bytes=10**9, block_times_s=(0.1,), median_s=0.1)
        >>> figures.describe(bandwidth)
        'Copy bandwidth of the cpu device: 10.0 GB/s.'
    """
    if isinstance(result, Comparison):
        return "Wall time of one step: " + "; ".join(_row_in_words(result, row) for row in result.rows) + "."
    if isinstance(result, Measurement):
        return f"{result.name}: {_times_in_words(result)}."
    if isinstance(result, RecompileLog):
        return result.summary
    if isinstance(result, Bandwidth):
        return f"Copy bandwidth of the {result.device} device: {_format.significant(result.bytes_per_s / 1e9)} GB/s."
    return result.title()


def _row_in_words(comparison: Comparison, row: Measurement) -> str:
    if row.name == comparison.baseline:
        return f"{row.name} {_times_in_words(row)} (baseline)"
    wall = comparison.speedup(row.name).wall
    return f"{row.name} {_times_in_words(row)}, {wall.verdict} {wall.interval}"


def _times_in_words(row: Measurement) -> str:
    said = _format.seconds(row.median_s)
    return said if row.kernel_time_s is None else f"{said} (kernels {_format.seconds(row.kernel_time_s)})"


def _draw_times(rows: Sequence[Measurement], ax: Axes) -> None:
    """One group of bars a row: wall time with its quartiles, and on a GPU the host's and the kernels' time."""
    all_series: dict[str, list[float | None]] = {
        "wall": [row.median_s for row in rows],
        "host": [row.host_time_s for row in rows],
        "kernels": [row.kernel_time_s for row in rows],
    }
    series = {name: times for name, times in all_series.items() if any(time_s is not None for time_s in times)}
    known_s = [time_s for times in series.values() for time_s in times if time_s]
    size_s, unit = _format.time_unit(known_s)
    is_log = _set_scale(ax, [time_s / size_s for time_s in known_s])
    height = 0.8 / len(series)
    ends = []
    for index, (name, times) in enumerate(series.items()):
        colour = COLOURS[index]
        for place, (row, time_s) in enumerate(zip(rows, times, strict=True)):
            if time_s is None:
                continue
            y, x = place + (index - (len(series) - 1) / 2) * height, time_s / size_s
            label = name if place == 0 else None
            if is_log:  # The length of a bar means nothing on a logarithmic axis.
                ax.plot([x], [y], MARKERS[index], color=colour, label=label)
            else:
                ax.barh(y, x, height * 0.9, color=colour, label=label)
            right = x
            if name == "wall":
                low, right = np.percentile(row.block_times_s, [25, 75]) / size_s
                ax.plot([low, right], [y, y], color="gray", linewidth=1.5, solid_capstyle="butt")
            ends.append(float(right))
            ax.annotate(
                _format.seconds(time_s), (right, y), (5, 0), textcoords="offset points", va="center", fontsize="small"
            )
    _name_rows(ax, [row.name for row in rows])
    ax.set_xlabel(f"time of one step [{unit}]")
    _leave_room(ax, ends, is_log=is_log)
    if len(series) > 1:
        ax.legend(frameon=False, loc="best")


def _draw_speedups(comparisons: Mapping[str, Comparison], ax: Axes) -> None:
    """A row a step, a point with its interval a device; left of one is slower than the baseline."""
    steps = list(dict.fromkeys(row.name for result in comparisons.values() for row in result.rows))
    offset = 0.6 / len(comparisons)
    for index, (device, result) in enumerate(comparisons.items()):
        places = [steps.index(row.name) + (index - (len(comparisons) - 1) / 2) * offset for row in result.rows]
        walls = [result.speedup(row.name).wall for row in result.rows]
        ax.errorbar(
            [wall.value for wall in walls],
            places,
            xerr=[[wall.value - wall.low for wall in walls], [wall.high - wall.value for wall in walls]],
            fmt=MARKERS[index % len(MARKERS)],
            color=COLOURS[index % len(COLOURS)],
            label=short_label(device),
            capsize=3,
        )
    ax.axvline(1, color="gray", linewidth=1, linestyle="--")
    _set_scale(ax, [wall.value for result in comparisons.values() for wall in (s.wall for s in result.speedups)])
    _name_rows(ax, steps)
    ax.set_xlabel("wall time: times faster than the baseline (below 1: slower)")
    ax.legend(frameon=False, loc="best")


def _draw_values(labels: Sequence[str], values: Sequence[float], what: str, ax: Axes) -> None:
    is_log = _set_scale(ax, [value for value in values if value])
    for place, value in enumerate(values):
        if is_log:
            ax.plot([value], [place], MARKERS[0], color=COLOURS[0])
        else:
            ax.barh(place, value, 0.6, color=COLOURS[0])
        ax.annotate(f"{value:.3g}", (value, place), (5, 0), textcoords="offset points", va="center", fontsize="small")
    _name_rows(ax, labels)
    ax.set_xlabel(what)
    _leave_room(ax, values, is_log=is_log)


def _draw_compiles(log: RecompileLog, ax: Axes) -> None:
    """The number of compiles so far after each call, and the call since which the step has been eager."""
    compiles = [c for c in log.compilations if not c.failure]
    # Without a watched step there are no calls to count; then the compiles themselves are counted.
    has_calls = log.calls is not None and all(c.call is not None for c in compiles)
    at = [c.call if has_calls and c.call is not None else number for number, c in enumerate(compiles, 1)]
    last = max([*at, (log.calls or 0) if has_calls else 0, 1])
    ax.step([0, *at, last], [0, *range(1, len(at) + 1), len(at)], where="post", color=COLOURS[0], label="compiles")
    if log.limit_hit:
        ax.axhline(log.recompile_limit, color=COLOURS[1], linestyle="--", label="limit")
    if log.eager_since_call is not None and has_calls:
        ax.axvspan(log.eager_since_call, last, color=COLOURS[1], alpha=0.25, label="eager")
    ax.set_xlabel("call" if has_calls else "compile")
    ax.set_ylabel("compiles so far")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, loc="best")


def _set_scale(ax: Axes, values: Sequence[float]) -> bool:
    """Make the axis logarithmic where the values differ by too much for a linear one; whether it is so now."""
    if not values or max(values) / min(values) <= _LINEAR_UP_TO:
        return False
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    return True


def _leave_room(ax: Axes, values: Sequence[float], *, is_log: bool) -> None:
    """Leave room for the labels behind the values; bars start at zero."""
    if is_log:
        ax.margins(x=0.15)
    else:
        ax.set_xlim(0, 1.2 * max(values) or 1)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows from top to bottom."""
    ax.set_yticks(range(len(names)), [short_label(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def short_label(text: str) -> str:
    """A text in one line; a dollar sign is one, and starts no formula."""
    line = " ".join(text.split())
    if len(line) > _LONGEST_LABEL:
        line = line[: _LONGEST_LABEL - 1] + "…"
    return line.replace("$", r"\$")
