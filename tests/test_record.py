"""Storing a recording: what is refused, what is said, what is kept."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import record as record_script
from optimbench import collect_environment
from optimbench.recordings import (
    RecordedScript,
    Recording,
    device_slug,
    load_recording,
    load_recordings,
    save_recording,
)
from recording_examples import SCRIPT, environment, measurement, recording

QUIET: dict[str, Any] = {"throttle_reasons": (), "other_processes": 0}


@pytest.fixture
def quiet() -> Recording:
    """A recording that nothing speaks against."""
    made = recording()
    scripts = {
        name: msgspec.structs.replace(run, environment=msgspec.structs.replace(run.environment, **QUIET))
        for name, run in made.scripts.items()
    }
    return msgspec.structs.replace(made, scripts=scripts)


def run(tmp_path: Path, new: Recording, *options: str) -> int:
    save_recording(new, tmp_path / "results.json")
    words = ["--results", str(tmp_path / "results.json"), "--folder", str(tmp_path / "recordings"), *options]
    return record_script.main(words)


def stored(tmp_path: Path) -> list[Recording]:
    return load_recordings(tmp_path / "recordings")


def test_the_first_recording_is_named_after_its_device(tmp_path: Path, quiet: Recording) -> None:
    assert run(tmp_path, quiet) == 0
    assert [path.name for path in (tmp_path / "recordings").glob("*.json")] == ["nvidia-h200.json"]
    assert stored(tmp_path) == [quiet]


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, quiet: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recordings").write_text("in the way")
    assert run(tmp_path, quiet) == 1
    assert capsys.readouterr().err.startswith("not recorded: ")


@pytest.mark.parametrize(
    ("machine", "option", "said"),
    [
        ({"device": "cpu", "device_name": "A CPU", "device_reason": "there is no GPU"}, "--allow-cpu", "this is a CPU"),
        ({"commit_is_dirty": True}, "--allow-dirty", "differ from their commit"),
        ({"commit": None}, "--allow-dirty", "commit is not known"),
        ({"throttle_reasons": ("power cap",)}, "--allow-throttled", "clocks are lowered: power cap"),
        ({"other_processes": 2}, "--allow-throttled", "2 other processes are on the GPU"),
    ],
)
def test_what_makes_a_recording_doubtful_is_refused_unless_asked_for(
    machine: dict[str, Any], option: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = environment(**QUIET | machine)
    doubtful = recording(
        device=device_slug(where),
        scripts={SCRIPT: RecordedScript(environment=where, source_sha256="0" * 64)},
        results={SCRIPT: {"one": measurement("eager")}},
    )
    assert run(tmp_path, doubtful) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"not recorded: {SCRIPT}: ")
    assert said in error
    assert option in error
    assert stored(tmp_path) == []
    assert run(tmp_path, doubtful, option) == 0
    assert stored(tmp_path) == [doubtful]


def test_results_at_the_size_of_the_tests_are_refused(
    tmp_path: Path, quiet: Recording, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPTIMBENCH_QUICK", "1")
    assert run(tmp_path, quiet) == 1
    assert "OPTIMBENCH_QUICK is set" in capsys.readouterr().err


def test_this_machine_is_checked_before_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    machine = collect_environment()
    status = record_script.main(["--check", "--allow-dirty", "--allow-throttled"])
    assert status == (1 if machine.device == "cpu" else 0)
    assert ("this is a CPU" in capsys.readouterr().err) == (machine.device == "cpu")
    assert record_script.main(["--check", "--allow-cpu", "--allow-dirty", "--allow-throttled"]) == 0


def test_what_has_changed_is_printed(tmp_path: Path, quiet: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, quiet)
    capsys.readouterr()
    results = dict(quiet.results, plot_02_other={"one": measurement("eager", (1.03e-4, 2.06e-4, 4.12e-4))})
    assert run(tmp_path, msgspec.structs.replace(quiet, results=results)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "plot_02_other.copy: gone" in lines
    assert "plot_02_other.one: wall time 200 µs -> 206 µs, 1.03x slower (within noise)" in lines
    assert lines[-1].endswith("nvidia-h200.json: 2 scripts recorded on NVIDIA H200")


def test_one_script_can_be_recorded_alone(tmp_path: Path, quiet: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, quiet)
    capsys.readouterr()
    other = msgspec.structs.replace(
        quiet, results={SCRIPT: {}, "plot_02_other": {"one": measurement("eager", (1e-3, 2e-3, 4e-3))}}
    )
    assert run(tmp_path, other, "--only", "plot_02_other") == 0
    (kept,) = stored(tmp_path)
    assert kept.results[SCRIPT] == quiet.results[SCRIPT]
    assert kept.results["plot_02_other"] == other.results["plot_02_other"]
    *said, last = capsys.readouterr().out.splitlines()
    assert said
    assert [line for line in said if not line.startswith("plot_02_other")] == []
    assert ": 1 scripts recorded" in last


def test_nothing_is_stored_where_something_is_missing_or_damaged(
    tmp_path: Path, quiet: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, quiet, "--only", "plot_03_nothing") == 1
    assert "no results of plot_03_nothing (there are plot_01_adam, plot_02_other)" in capsys.readouterr().err
    assert run(tmp_path, recording(scripts={}, results={})) == 1
    assert "holds no results" in capsys.readouterr().err
    assert not (tmp_path / "recordings").exists()
    assert run(tmp_path, quiet) == 0
    path = tmp_path / "recordings" / "nvidia-h200.json"
    path.write_text(path.read_text().replace('"median_s": 0.0002', '"median_s": 0.0003', 1))
    before = path.read_text()
    assert run(tmp_path, quiet) == 1
    assert "but the blocks give 0.0002" in capsys.readouterr().err
    assert path.read_text() == before
    assert load_recording(tmp_path / "results.json") == quiet
