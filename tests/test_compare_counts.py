"""Which differences between two builds are differences of counts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import compare_counts
from optimbench.recordings import save_recording
from optimbench.results import Compilation, RecompileLog, Table
from recording_examples import SCRIPT, measurement, recording


def log(n: int, duration_s: float, **fields: Any) -> RecompileLog:
    made = tuple(
        Compilation(function="step", location="adam.py:1", is_recompile=i > 0, duration_s=duration_s) for i in range(n)
    )
    return RecompileLog(compilations=made, recompile_limit=8, **fields)


def table(*rows: tuple[str | int | float | None, ...]) -> Table:
    return Table(name="Counts", columns=("what", "number"), cells=rows)


def compared(tmp_path: Path, *results: dict[str, Any]) -> int:
    for number, each in enumerate(results):
        made = msgspec.structs.replace(recording(), results={SCRIPT: each, "plot_02_other": {}})
        save_recording(made, tmp_path / f"{number}.json")
    return compare_counts.main([str(tmp_path / "0.json"), str(tmp_path / "1.json")])


def test_times_may_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ("a", 2), ("b", "8, eager from 9"), ("c", None)
    status = compared(
        tmp_path,
        {"log": log(2, 0.5), "one": measurement("eager", (1e-3, 2e-3, 3e-3)), "table": table(*rows, ("s", 0.25))},
        {"log": log(2, 0.7), "one": measurement("eager", (2e-3, 3e-3, 4e-3)), "table": table(*rows, ("s", 0.5))},
    )
    assert status == 0, capsys.readouterr().out
    assert "0 counts differ in 2 scripts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (log(2, 0.5), log(3, 0.5)),
        (log(2, 0.5), log(2, 0.5, over_limit=("step",))),
        (table(("a", 2)), table(("a", 3))),
        (table(("a", "8, eager from 9")), table(("a", "2"))),
        (table(("a", 2)), table(("a", 2), ("b", 2))),
        (table(("a", 2)), log(2, 0.5)),
        (measurement("eager"), measurement("fused")),
    ],
)
def test_counts_may_not(tmp_path: Path, capsys: pytest.CaptureFixture[str], one: Any, other: Any) -> None:
    assert compared(tmp_path, {"it": one}, {"it": other}) == 1
    assert f"{SCRIPT}.it: " in capsys.readouterr().out


def test_a_result_that_is_gone_counts(tmp_path: Path) -> None:
    assert compared(tmp_path, {"it": log(1, 0.5)}, {}) == 1


def test_a_damaged_file_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0.json").write_text("{")
    assert compare_counts.main([str(tmp_path / "0.json"), str(tmp_path / "0.json")]) == 2
    assert "not compared" in capsys.readouterr().err
