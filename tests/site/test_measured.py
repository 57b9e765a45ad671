"""The role that puts measured values into prose: what an address may name, and what is said where there is nothing."""

import re
from pathlib import Path

import msgspec
import pytest

from optimbench import Comparison, RecompileLog, Table
from optimbench_site.measured import measured
from optimbench_site.stored import stored_recordings
from recording_examples import SCRIPT, recording

OTHER = "plot_02_other"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"{SCRIPT}.comparison.rows[compiled].median_s", "90.0 µs"),
        (f"{SCRIPT}.comparison.rows[1].median_s", "90.0 µs"),
        (f"{SCRIPT}.comparison.rows[compiled].peak_extra_bytes", "4.00 KiB"),
        (f"{SCRIPT}.comparison.rows[compiled].kernel_count", "2"),
        (f"{SCRIPT}.comparison.rows[compiled].block_times_s[2]", "300 µs"),
        (f"{SCRIPT}.comparison.speedups[compiled].kernel", "1.40x faster [1.37, 1.43]"),
        (f"{SCRIPT}.comparison.speedups[compiled].kernel.verdict", "1.40x faster"),
        (f"{SCRIPT}.log.n_recompiles", "0"),
        (f"{SCRIPT}.lr_table.cells[last][lr]", "-2.5"),
        (f"{SCRIPT}.lr_table.cells[last][1]", "-2.5"),
        (f"{SCRIPT}.machine.torch", "2.11.0+cu130"),
        (f"{OTHER}.copy.bytes_per_s", "5.00 GB/s"),
        (f"{OTHER}.one.first_call_s", "3.00 s"),
    ],
)
def test_a_value_is_shown_with_its_unit_and_device(address: str, shown: str) -> None:
    assert measured(f"nvidia-h200:{address}", [recording()]) == f"{shown} (NVIDIA H200)"


def test_a_value_may_stand_alone() -> None:
    assert measured(f"~nvidia-h200:{SCRIPT}.comparison.rows[compiled].median_s", [recording()]) == "90.0 µs"


@pytest.mark.parametrize(
    ("name", "warning", "shown"),
    [
        ("eager", "noisy: the IQR is", ", noisy"),
        ("compiled", "drifting: 1 ms in the first third", ", drifting"),
        ("compiled", "other processes used 20% of the processors", ""),
    ],
)
def test_a_noisy_or_drifting_row_marks_its_times_and_its_ratio(name: str, warning: str, shown: str) -> None:
    stored = recording()
    comparison = stored.results[SCRIPT]["comparison"]
    assert isinstance(comparison, Comparison)
    rows = [msgspec.structs.replace(row, warnings=(warning,) if row.name == name else ()) for row in comparison.rows]
    marked = msgspec.structs.replace(comparison, rows=tuple(rows))
    stored = msgspec.structs.replace(stored, results={SCRIPT: {"comparison": marked}})
    start = f"~nvidia-h200:{SCRIPT}.comparison"
    assert measured(f"{start}.speedups[compiled].wall", [stored]).endswith(f"]{shown}")
    assert measured(f"{start}.rows[{name}].median_s", [stored]).endswith(f"s{shown}")
    assert measured(f"{start}.speedups[compiled].kernel", [stored]) == "1.40x faster [1.37, 1.43]"
    assert measured(f"{start}.rows[{name}].first_call_s", [stored]) == "3.00 s"
    other = "compiled" if name == "eager" else "eager"
    assert measured(f"{start}.rows[{other}].median_s", [stored]).endswith("s")


def test_an_empty_cell_is_a_dash_and_a_missing_field_is_none() -> None:
    cells = (("Adam", None),)
    table = Table(name="Steps that earn back the first call", columns=("optimizer", "steps"), cells=cells)
    log = RecompileLog(compilations=(), recompile_limit=8)
    stored = msgspec.structs.replace(recording(), results={SCRIPT: {"break_even": table, "log": log}})
    assert measured(f"~nvidia-h200:{SCRIPT}.break_even.cells[Adam][steps]", [stored]) == "–"  # noqa: RUF001
    with pytest.raises(LookupError, match="NoneType"):
        measured(f"nvidia-h200:{SCRIPT}.log.eager_since_call", [stored])


def test_a_ratio_that_a_cpu_does_not_have_is_a_dash() -> None:
    stored = recording()
    comparison = stored.result(SCRIPT, "comparison")
    assert isinstance(comparison, Comparison)
    speedups = tuple(msgspec.structs.replace(each, host=None, kernel=None) for each in comparison.speedups)
    on_a_cpu = msgspec.structs.replace(comparison, speedups=speedups)
    stored = msgspec.structs.replace(stored, results={SCRIPT: {"comparison": on_a_cpu}})
    for ratio in ("host", "kernel"):
        assert measured(f"~nvidia-h200:{SCRIPT}.comparison.speedups[compiled].{ratio}", [stored]) == "–"  # noqa: RUF001


def test_every_address_in_the_docs_is_in_the_stored_recordings() -> None:
    docs = Path(__file__).parents[2] / "docs"
    addresses = [found for page in docs.glob("*.rst") for found in re.findall(r":measured:`([^`]+)`", page.read_text())]
    assert addresses
    recordings = stored_recordings(docs)
    for address in addresses:
        assert measured(address, recordings)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "expected device:script.variable.field"),
        (f"nvidia-h200:{SCRIPT}", "expected device:script.variable.field"),
        (f"nvidia-h200:{SCRIPT}.comparison.rows[compiled", "expected device:script.variable.field"),
        (f"nvidia-a100:{SCRIPT}.log.calls", "no recording of 'nvidia-a100' (there is 'nvidia-h200')"),
        ("nvidia-h200:plot_09_x.log.calls", f"no script 'plot_09_x' (there is '{SCRIPT}', '{OTHER}')"),
        (f"nvidia-h200:{OTHER}.log.calls", "no result 'log' (there is 'copy', 'one', 'recommendation')"),
        (f"nvidia-h200:{OTHER}.one.mean_s", "Measurement has no 'mean_s' (it has 'name', "),
        (f"nvidia-h200:{OTHER}.one.__class__", "nothing has a field '__class__' here"),
        (f"nvidia-h200:{OTHER}.one.notes", "Measurement has no 'notes'"),
        (f"nvidia-h200:{OTHER}.one.median_s.real", "nothing has a field 'real' here"),
        (f"nvidia-h200:{OTHER}.one.median_s[0]", "[0] follows something that has no items"),
        (f"nvidia-h200:{SCRIPT}.comparison.rows[fused].median_s", "no [fused] (there is 'eager', 'compiled')"),
        (f"nvidia-h200:{SCRIPT}.comparison.rows[2].median_s", "no [2] (there is 'eager', 'compiled')"),
        (f"nvidia-h200:{SCRIPT}.comparison", "that is Comparison, not a number or a text"),
        (f"nvidia-h200:{SCRIPT}.comparison.rows[eager].cold_cache", "that is bool, not a number or a text"),
    ],
)
def test_a_wrong_address_says_what_could_be_there(address: str, said: str) -> None:
    with pytest.raises(LookupError) as caught:
        measured(address, [recording()])
    assert said in str(caught.value.args[0])
