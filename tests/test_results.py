import html
import math
import re

import pytest

from optimbench import _format
from optimbench.comparison import compare_measurements
from optimbench.errors import InvalidArgumentError, OptimBenchError
from optimbench.results import (
    Bandwidth,
    Comparison,
    Compilation,
    Measurement,
    NotMeasured,
    Ratio,
    RecompileLog,
    Speedup,
    Table,
)


def measurement(name: str = "step", seconds: float = 0.002, **changes: object) -> Measurement:
    fields = {
        "name": name,
        "device": "cpu",
        "num_threads": 2,
        "calls_per_block": 10,
        "block_times_s": (seconds, seconds, seconds),
        "median_s": seconds,
        "iqr_s": 0.0,
        "warm_up_calls": 5,
        "first_call_s": 3.0,
        "warm_up_s": 3.1,
    }
    return Measurement(**{**fields, **changes})  # type: ignore[arg-type]


def compilation(**changes: object) -> Compilation:
    fields = {"function": "step", "location": "torch/optim/adam.py:213", "is_recompile": False}
    return Compilation(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value_s", "text"), [(12.34, "12.3 s"), (0.0477, "47.7 ms"), (7.24e-5, "72.4 µs"), (5e-9, "5.00 ns"), (0, "0 s")]
)
def test_seconds_are_shown_in_a_unit_that_suits_them(value_s: float, text: str) -> None:
    assert _format.seconds(value_s) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2**20 * 40, "40.0 MiB")])
def test_bytes_are_shown_in_binary_units(count: int, text: str) -> None:
    assert _format.byte_count(count) == text


def test_a_column_has_one_unit() -> None:
    assert _format.time_column("wall", [2e-3, 5e-4, None]) == ("wall [µs]", ["2 000", "500", "–"])  # noqa: RUF001


@pytest.mark.parametrize(
    "changes",
    [
        {"name": " "},
        {"median_s": 0.003},
        {"iqr_s": 0.1},
        {"iqr_s": -0.1},
        {"block_times_s": ()},
        {"block_times_s": (0.002, -0.002, 0.002)},
        {"block_times_s": (0.002, 0.0, 0.002)},
        {"first_call_s": math.nan},
        {"warm_up_s": math.inf},
        {"num_threads": 0},
        {"peak_extra_bytes": -1},
        {"kernel_time_s": -1.0},
        {"host_time_s": 0.001},
        {"host_time_s": 0.001, "block_host_times_s": (0.002, 0.002)},
    ],
)
def test_what_cannot_be_a_measurement_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        measurement(**changes)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, OptimBenchError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_550.3, "12 550"), (9999.6, "10 000"), (-20_000.4, "-20 000"), (9999.4, "9999"), (1e-8, "1e-08"), (2, "2")],
)
def test_a_large_number_in_a_table_has_no_exponent(value: float, text: str) -> None:
    assert Table(name="times", columns=("µs",), cells=((value,),)).headers_and_rows()[1] == [[text]]


def test_text_and_html_show_the_same_cells() -> None:
    compared = compare_measurements([measurement("a"), measurement("b", 0.001)], baseline="a")
    headers, rows = compared.headers_and_rows()
    shown = compared._repr_html_()
    cells = [html.unescape(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", shown)]
    assert cells == [cell for row in rows for cell in row]
    assert all(cell in str(compared) for row in rows for cell in row)
    assert all(header in str(compared) for header in headers)


def test_html_is_escaped() -> None:
    hostile = "<script>alert('x')</script>"
    table = Table(name=hostile, columns=(hostile,), cells=((hostile,),), remarks=(hostile,))
    log = RecompileLog(compilations=(compilation(function=hostile, guards=(hostile,)),), recompile_limit=8)
    for shown in (table._repr_html_(), log._repr_html_(), measurement(hostile)._repr_html_()):
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown


def test_the_representation_holds_no_memory_address() -> None:
    compared = compare_measurements([measurement("a"), measurement("b")], baseline="a")
    assert " at 0x" not in repr(compared)
    assert "median_s=0.002" in repr(compared)


def test_results_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        measurement().median_s = 1.0  # type: ignore[misc]


def test_a_ratio_has_a_verdict_only_where_its_interval_leaves_one_out() -> None:
    assert Ratio(value=1.9, low=1.85, high=1.95).verdict == "1.90x faster"
    assert Ratio(value=0.5, low=0.4, high=0.6).verdict == "2.00x slower"
    assert Ratio(value=1.2, low=0.9, high=1.5).verdict == "no clear difference"
    # Less than one percent is not told, however sure it is.
    assert Ratio(value=1.005, low=1.004, high=1.006).verdict == "no clear difference"
    assert Ratio(value=0.5, low=0.4, high=0.6).interval == "[1.67, 2.50]"


@pytest.mark.parametrize("bounds", [(2.0, 3.0), (0.1, 0.2), (-1.0, 2.0), (1.0, math.inf)])
def test_a_ratio_outside_its_interval_is_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(InvalidArgumentError):
        Ratio(value=1.0, low=bounds[0], high=bounds[1])


def test_a_ratio_comes_from_the_rounds_and_not_from_the_medians() -> None:
    # Drift makes the blocks of both steps double from round to round; within a round the ratio is always two.
    times = [0.001 * 2**i for i in range(10)]
    slow = measurement("slow", block_times_s=tuple(2 * t for t in times), median_s=0.048, iqr_s=0.214)
    fast = measurement("fast", block_times_s=tuple(times), median_s=0.024, iqr_s=0.107)
    wall = compare_measurements([slow, fast], baseline="slow").speedup("fast").wall
    assert (wall.low, wall.value, wall.high) == (2.0, 2.0, 2.0)


def test_host_and_kernel_times_have_verdicts_of_their_own() -> None:
    def on_gpu(name: str, wall_s: float, host_s: float, kernel_s: float) -> Measurement:
        gpu = {"device": "cuda", "block_host_times_s": (host_s,) * 3, "host_time_s": host_s, "kernel_time_s": kernel_s}
        return measurement(name, wall_s, kernel_count=2, peak_extra_bytes=0, **gpu)

    compared = compare_measurements(
        [on_gpu("eager", 240e-6, 120e-6, 229e-6), on_gpu("compiled", 240e-6, 240e-6, 72e-6)], baseline="eager"
    )
    assert compared.conclusion("compiled") == (
        "compiled against eager: wall time: no clear difference; host time: 2.00x slower; kernel time: 3.18x faster."
    )
    assert "kernels a step" in str(compared)


def test_kernel_times_within_two_percent_are_no_difference() -> None:
    rows = [measurement(name, kernel_time_s=time_s) for name, time_s in (("a", 1e-4), ("b", 0.985e-4))]
    kernel = compare_measurements(rows, baseline="a").speedup("b").kernel
    assert kernel is not None
    assert kernel.verdict == "no clear difference"


def test_the_fastest_are_those_that_none_is_clearly_faster_than() -> None:
    def row(name: str, *times_s: float) -> Measurement:
        quartiles = sorted(times_s)
        return measurement(name, block_times_s=times_s, median_s=quartiles[1], iqr_s=(quartiles[2] - quartiles[0]) / 2)

    # "even" is a little slower than "best" in the median, and faster in one round of three.
    rows = [row("slow", 0.004, 0.004, 0.004), row("even", 0.0021, 0.0024, 0.0019), row("best", 0.002, 0.002, 0.002)]
    compared = compare_measurements(rows, baseline="slow")
    assert compared.fastest() == ("best", "even")
    assert compared.fastest(["slow", "even", "not measured"]) == ("even",)
    assert compared.fastest(["not measured"]) == ()
    assert compared.finding == "best or even is fastest: 2.00x faster than slow"
    assert compare_measurements(rows[::-1], baseline="even").finding == "Nothing is clearly faster than even"


def test_a_comparison_refuses_what_does_not_belong_together() -> None:
    a, b = measurement("a"), measurement("b")
    one = Speedup(wall=Ratio(value=1.0, low=1.0, high=1.0))
    with pytest.raises(InvalidArgumentError, match="baseline 'c' was not measured"):
        compare_measurements([a, b], baseline="c")
    with pytest.raises(InvalidArgumentError, match="duplicate names"):
        compare_measurements([a, a], baseline="a")
    with pytest.raises(InvalidArgumentError, match="2 blocks and the baseline 3"):
        compare_measurements([a, measurement("b", block_times_s=(0.002, 0.002))], baseline="a")
    with pytest.raises(InvalidArgumentError, match="1 speedups for 2 rows"):
        Comparison(baseline="a", rows=(a, b), speedups=(one,))
    with pytest.raises(InvalidArgumentError, match="baseline 'x' is not among the rows"):
        Comparison(baseline="x", rows=(a,), speedups=(one,))
    with pytest.raises(InvalidArgumentError, match="no row is named 'x'"):
        compare_measurements([a], baseline="a").row("x")


def test_a_step_without_a_time_is_shown_with_its_reason() -> None:
    missing = NotMeasured(name="compiled", outcome="failed", reason="TypeError: no")
    shown = str(compare_measurements([measurement("a")], baseline="a", not_measured=[missing]))
    assert "compiled: failed. TypeError: no" in shown


def test_zero_recompiles_is_never_said_of_what_was_not_compiled() -> None:
    nothing = RecompileLog(compilations=(), recompile_limit=8, not_compiled="The step is disabled for the compiler.")
    assert nothing.summary == "Not compiled. The step is disabled for the compiler."
    assert RecompileLog(compilations=(compilation(),), recompile_limit=8).summary.startswith("1 compiled, 0 of them")


def test_a_step_past_the_limit_is_said_to_be_eager() -> None:
    log = RecompileLog(
        compilations=(compilation(), compilation(is_recompile=True)),
        recompile_limit=2,
        over_limit=("step",),
        eager_since_call=3,
        calls=12,
    )
    assert log.limit_hit
    assert "step has been eager since call 3" in str(log)


def test_the_guards_as_torch_prints_them_are_collapsed() -> None:
    log = RecompileLog(compilations=(compilation(guards=("self.param_groups[0]['lr'] == 0.01",)),), recompile_limit=8)
    shown = log._repr_html_()
    assert shown.index("<details") < shown.index("param_groups")


@pytest.mark.parametrize("cells", [((1, 2),), ((math.nan,),), ((1,), ())])
def test_a_table_is_rectangular_and_finite(cells: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cells\["):
        Table(name="t", columns=("a",), cells=cells)


def test_bandwidth_counts_bytes_over_the_median_time() -> None:
    measured = Bandwidth(device="cuda", moved_bytes=8 * 10**9, block_times_s=(1.0, 2.0, 4.0), median_s=2.0)
    assert measured.bytes_per_s == 4e9
    assert "4.00 GB/s" in str(measured)
    with pytest.raises(InvalidArgumentError, match="moved_bytes is 0"):
        Bandwidth(device="cuda", moved_bytes=0, block_times_s=(1.0,), median_s=1.0)


def test_warnings_that_rows_share_are_said_once_and_many_notes_are_folded() -> None:
    rows = [measurement(name, warnings=("a busy CPU", f"noise {name}", f"drift {name}")) for name in "abc"]
    compared = compare_measurements(rows, baseline="a")
    assert str(compared).count("a busy CPU") == 1
    assert "all rows: a busy CPU" in str(compared)
    shown = compared._repr_html_()
    assert "<summary>5 more notes</summary>" in shown
    assert shown.index("all rows") < shown.index("<details") < shown.index("drift c")
    assert "<details" not in compare_measurements(rows[:1], baseline="a")._repr_html_()


def test_blocks_of_different_sizes_are_told_as_a_range() -> None:
    rows = [measurement("a", calls_per_block=66), measurement("b", calls_per_block=616)]
    assert "3 blocks of 66 to 616 calls" in str(compare_measurements(rows, baseline="a"))
