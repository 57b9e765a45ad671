"""Figures: what is drawn is what was measured, and can be read."""

import io
import re
from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from optimbench import figures
from optimbench.comparison import compare_measurements
from optimbench.errors import InvalidArgumentError
from optimbench.results import Bandwidth, Comparison, Compilation, Measurement, RecompileLog, Table
from recording_examples import SCRIPT, measurement, recording

WHITE, DARK_PAGE = "#ffffff", "#131416"
HOSTILE = "$\\frac{1}{0$ <b>&\n_^{"


@pytest.fixture
def ax() -> Iterator[Axes]:
    mpl.use("agg")
    figure, axes = plt.subplots()
    yield axes
    figure.savefig(io.BytesIO(), format="svg")  # Every figure can be written too.
    plt.close(figure)


def steady(name: str, wall_s: float, **changes: Any) -> Measurement:
    on_cpu = {"block_host_times_s": None, "host_time_s": None, "kernel_time_s": None, "kernel_count": None}
    return measurement(name, (wall_s,) * 3, **(on_cpu | changes))


def compared(**wall_s: float) -> Comparison:
    rows = [steady(name, time_s) for name, time_s in wall_s.items()]
    return compare_measurements(rows, baseline=rows[0].name)


def bars(ax: Axes) -> list[float]:
    return [round(bar.get_width(), 9) for bar in ax.patches if isinstance(bar, Rectangle)]


def points(line: Line2D) -> tuple[list[float], list[float]]:
    x, y = (np.asarray(data, float).tolist() for data in (line.get_xdata(), line.get_ydata()))
    return x, y


def labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_yticklabels()]


def test_bars_are_the_medians_in_one_unit(ax: Axes) -> None:
    assert figures.draw(compared(eager=3e-3, compiled=1e-3), ax) is ax
    assert bars(ax) == [3.0, 1.0]
    assert labels(ax) == ["eager", "compiled"]
    assert ax.get_xlabel() == "time of one step [ms]"
    assert [text.get_text() for text in ax.texts] == ["3.00 ms", "1.00 ms"]
    assert ax.yaxis_inverted(), "the first row belongs on top"


def test_there_is_room_behind_the_quartiles_too(ax: Axes) -> None:
    on_cpu = {"block_host_times_s": None, "host_time_s": None, "kernel_time_s": None, "kernel_count": None}
    figures.draw(measurement("noisy", (1e-3, 2e-3, 8e-3), **on_cpu), ax)
    (label,) = ax.texts
    assert label.xy[0] == pytest.approx(5.0)  # type: ignore[attr-defined]
    assert ax.get_xlim()[1] > 5.5


def test_on_a_gpu_wall_host_and_kernel_times_stand_side_by_side(ax: Axes) -> None:
    gpu = {"block_host_times_s": (2e-4,) * 3, "host_time_s": 2e-4, "kernel_time_s": 1e-4}
    figures.draw(steady("eager", 3e-4, **gpu), ax)
    assert bars(ax) == [300.0, 200.0, 100.0]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["wall", "host", "kernels"]


def test_times_far_apart_become_points_on_a_logarithmic_axis(ax: Axes) -> None:
    figures.draw(compared(eager=1.0, compiled=1e-3), ax)
    assert ax.get_xscale() == "log"
    assert bars(ax) == []
    assert [points(line)[0][0] for line in ax.lines if line.get_marker() == "o"] == pytest.approx([1000.0, 1.0])


def test_devices_are_compared_by_speedup_with_intervals(ax: Axes) -> None:
    results = {"A": compared(eager=4e-3, compiled=1e-3), "B": compared(eager=1e-3, fused=2e-3)}
    figures.draw_devices(results, ax)
    assert labels(ax) == ["eager", "compiled", "fused"]
    drawn = {str(c.get_label()): points(c.lines[0])[0] for c in ax.containers if isinstance(c, ErrorbarContainer)}
    assert drawn == {"A": [1.0, 4.0], "B": [1.0, 0.5]}


@pytest.mark.parametrize(
    ("results", "widths"),
    [
        ({"A": steady("s", 2e-3), "B": steady("s", 1e-3)}, [2.0, 1.0]),
        ({"A": Bandwidth(device="cuda", moved_bytes=2 * 10**9, block_times_s=(0.5,), median_s=0.5)}, [4.0]),
        ({"A": recording().results[SCRIPT]["log"], "B": RecompileLog(compilations=(), recompile_limit=8)}, [0.0, 0.0]),
    ],
)
def test_devices_are_compared_by_one_value_where_there_is_one(
    results: dict[str, Any], widths: list[float], ax: Axes
) -> None:
    figures.draw_devices(results, ax)
    assert bars(ax) == widths
    assert labels(ax) == list(results)


def test_a_log_shows_compiles_by_call_the_limit_and_the_eager_calls(ax: Axes) -> None:
    compilations = tuple(
        Compilation(function="step", location="a.py:1", is_recompile=n > 1, call=n, failure="" if n < 4 else "no")
        for n in (1, 2, 4)
    )
    log = RecompileLog(compilations=compilations, recompile_limit=2, over_limit=("step",), eager_since_call=4, calls=9)
    figures.draw(log, ax)
    assert points(ax.lines[0]) == ([0, 1, 2, 9], [0, 1, 2, 2])
    assert points(ax.lines[1])[1] == [2, 2]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["compiles", "limit", "eager"]


def test_a_log_without_calls_counts_compiles(ax: Axes) -> None:
    log = RecompileLog(
        compilations=(Compilation(function="f", location="a.py:1", is_recompile=False),), recompile_limit=8
    )
    figures.draw(log, ax)
    assert ax.get_xlabel() == "compile"
    assert points(ax.lines[0])[1] == [0, 1, 1]


@pytest.mark.parametrize("name", ["$", HOSTILE, "x" * 500, "a " * 300])
def test_names_are_drawn_as_they_are_and_shortened(name: str, ax: Axes) -> None:
    result = compare_measurements([steady(name, 1e-3)], baseline=name)
    figures.draw_devices({name: result}, ax)
    ax.clear()
    figures.draw(result, ax)
    assert all(len(label.replace("\\$", "$")) <= 36 for label in labels(ax))
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(io.BytesIO(), format="png")


def test_what_has_no_picture_says_so(ax: Axes) -> None:
    table = Table(name="t", columns=("a",), cells=((1,),))
    with pytest.raises(InvalidArgumentError, match="there is no picture of a Table"):
        figures.draw(table, ax)
    with pytest.raises(InvalidArgumentError, match="there is no picture of a Table"):
        figures.draw_devices({"A": table}, ax)
    with pytest.raises(InvalidArgumentError, match="results of 2 types"):
        figures.draw_devices({"A": table, "B": steady("s", 1.0)}, ax)


def test_every_picture_has_words() -> None:
    slower = figures.describe(compared(eager=1e-3, compiled=2e-3))
    assert slower == ("Wall time of one step: eager 1.00 ms (baseline); compiled 2.00 ms, 2.00x slower [2.00, 2.00].")
    assert figures.describe(measurement("step")) == "step: 200 µs (kernels 70.0 µs)."
    for variables in recording().results.values():
        assert all(figures.describe(result).strip() for result in variables.values())


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*figures.COLOURS, "gray"])
@pytest.mark.parametrize("page", [WHITE, DARK_PAGE])
def test_colours_can_be_seen_on_light_and_dark_pages(colour: str, page: str) -> None:
    assert contrast(colour, page) >= 3


def test_text_and_lines_follow_matplotlib_s_settings() -> None:
    lines_and_text = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
    settings: dict[Any, str] = dict.fromkeys(lines_and_text, "#abcdef")
    with mpl.rc_context(settings):
        figure, axes = plt.subplots()
        figures.draw(compared(eager=3e-3, compiled=1e-3), axes)
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True)
        plt.close(figure)
    used = set(re.findall(r"#[0-9a-f]{6}", target.getvalue()))
    assert used <= {"#abcdef", "#808080", *figures.COLOURS}, used
