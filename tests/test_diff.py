"""`python -m optimbench diff`: what it says of two recordings, and its exit status."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from optimbench.__main__ import main
from optimbench.recordings import RecordedScript, Recording, device_slug, find_regressions, save_recording
from optimbench.results import Bandwidth, RecompileLog
from recording_examples import SCRIPT, SHA256, environment, measurement, recording

# Blocks that scatter by 2 %, as those of a quiet machine do.
STEADY = [1 + 0.02 * index / 19 for index in range(20)]


def on(
    machine: dict[str, Any], *, wall: float = 1.0, kernel: float | None = 7e-5, copy: float = 1.0, compiles: int = 8
) -> Recording:
    """A recording of two scripts whose times are the given multiples of some fixed ones."""
    where = environment(**{"throttle_reasons": ()} | machine)
    device = where.device
    host = {} if device == "cuda" else {"block_host_times_s": None, "host_time_s": None}
    row = measurement(
        "eager", tuple(1e-4 * wall * t for t in STEADY), device=device, kernel_time_s=kernel, warnings=(), **host
    )
    copied_s = tuple(1e-3 * copy * t for t in STEADY)
    results = {
        "row": row,
        "copied": Bandwidth(device=device, moved_bytes=10**6, block_times_s=copied_s, median_s=1e-3 * copy * 1.01),
        "log": RecompileLog(compilations=(), recompile_limit=8, calls=20, eager_since_call=compiles),
    }
    run = RecordedScript(environment=where, source_sha256=SHA256)
    return Recording(
        device=device_slug(where),
        scripts={SCRIPT: run, "plot_02_other": run},
        results={SCRIPT: results, "plot_02_other": {}},
    )


GPU: dict[str, Any] = {}
CPU: dict[str, Any] = {"device": "cpu", "device_name": "A CPU", "cpu_count": 2}


@pytest.fixture
def diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that compares two recordings from the command line: exit status, output and errors."""

    def run(old: Recording, new: Recording, *options: str) -> tuple[int, str, str]:
        save_recording(old, tmp_path / "old.json")
        save_recording(new, tmp_path / "new.json")
        status = main(["diff", str(tmp_path / "old.json"), str(tmp_path / "new.json"), *options])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_the_same_recording_has_no_difference(diff: Any) -> None:
    status, out, _ = diff(on(GPU), on(GPU))
    assert status == 0
    assert out == "0 times slower, 4 times within noise.\n"


def test_a_slower_kernel_is_told_with_its_interval(diff: Any) -> None:
    status, out, _ = diff(on(GPU), on(GPU, kernel=1.15 * 7e-5))
    assert status == 1
    assert "Slower beyond the threshold:" in out
    assert f"  {SCRIPT}.row: kernel time 70.0 µs -> 80.5 µs, 1.15x slower [1.13, 1.17]\n" in out
    assert diff(on(GPU), on(GPU, kernel=1.15 * 7e-5), "--threshold", "1.14")[0] == 0


def test_the_whole_interval_must_lie_beyond_the_threshold(diff: Any) -> None:
    # 1.12x slower with a margin of 2 %: its lower end, 1.098, lies below the threshold of 1.1.
    status, out, _ = diff(on(GPU), on(GPU, kernel=1.12 * 7e-5))
    assert status == 0
    assert "Other times that differ:" in out
    assert "1.12x slower [1.10, 1.14]" in out


def test_wall_and_host_times_of_a_gpu_may_wander(diff: Any) -> None:
    status, out, _ = diff(on(GPU), on(GPU, wall=1.9))
    assert status == 0
    assert "wall time 101 µs -> 192 µs, 1.90x slower" in out
    status, out, _ = diff(on(GPU), on(GPU, wall=2.2))
    assert status == 1
    assert "2 times slower" in out  # The wall time, and the host's.
    assert diff(on(GPU), on(GPU, wall=1.9), "--host-threshold", "1.5")[0] == 1


def test_times_of_a_cpu_and_of_a_copy_may_not(diff: Any) -> None:
    status, out, _ = diff(on(CPU, kernel=None), on(CPU, kernel=None, wall=1.2))
    assert status == 1
    assert f"{SCRIPT}.row: wall time 101 µs -> 121 µs, 1.20x slower [1.1" in out
    status, out, _ = diff(on(GPU), on(GPU, copy=1.3))
    assert status == 1
    assert f"{SCRIPT}.copied: time of the copy 1.01 ms -> 1.31 ms, 1.30x slower [1.2" in out


def test_what_is_faster_is_no_regression(diff: Any) -> None:
    status, out, _ = diff(on(GPU), on(GPU, kernel=3.5e-5, wall=0.3, copy=0.5))
    assert status == 0
    assert "2.00x faster" in out
    assert "Slower beyond" not in out


def test_changed_counts_and_versions_are_told_once(diff: Any) -> None:
    status, out, _ = diff(on(GPU), on({"torch": "2.13.0", "driver": "590.1"}, compiles=3))
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "Changed:"
    assert f"  {SCRIPT}.log: eager_since_call 8 -> 3" in lines
    assert f"  {SCRIPT} and 1 more: torch 2.11.0+cu130 -> 2.13.0" in lines
    assert f"  {SCRIPT} and 1 more: driver 580.159 -> 590.1" in lines
    assert sum("torch" in line for line in lines) == 1


def test_a_folder_stands_for_the_recording_of_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    new = tmp_path / "results.json"
    save_recording(on(GPU, kernel=9e-5), new)
    assert main(["diff", str(folder), str(new)]) == 0
    assert "holds no recording of this device: nothing to compare with" in capsys.readouterr().out
    save_recording(on(GPU), folder / "nvidia-h200.json")
    assert main(["diff", str(folder), str(new)]) == 1
    assert "1.29x slower" in capsys.readouterr().out


@pytest.mark.parametrize("factor", ["0.9", "-1", "nan", "inf"])
@pytest.mark.parametrize("option", ["--threshold", "--host-threshold"])
def test_a_threshold_is_a_factor(option: str, factor: str, diff: Any) -> None:
    status, out, err = diff(on(GPU), on(GPU), f"{option}={factor}")
    assert (status, out) == (2, "")
    assert f"{option[2:].replace('-', '_')} is {float(factor)} (expected a factor of at least 1)" in err


def test_bad_input_has_a_status_of_its_own(tmp_path: Path, diff: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = diff(on(GPU), on(CPU, kernel=None))
    assert status == 2
    assert "of two devices, nvidia-h200 and a-cpu-2-cores" in err
    path = str(tmp_path / "old.json")
    with pytest.raises(SystemExit) as ended:
        main(["diff", "", path])
    assert ended.value.code == 2
    assert "the old recording's name is empty" in capsys.readouterr().err
    assert main(["diff", path, str(tmp_path / "nothing.json")]) == 2
    assert "nothing.json: is no file" in capsys.readouterr().err
    (tmp_path / "new.json").write_text("{}")
    assert main(["diff", path, str(tmp_path / "new.json")]) == 2
    assert "new.json: format_version" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["diff", path])
    assert ended.value.code == 2


def test_it_runs_where_torch_is_not_installed(tmp_path: Path) -> None:
    save_recording(on(GPU), tmp_path / "old.json")
    save_recording(on(GPU, kernel=9e-5), tmp_path / "new.json")
    # None in sys.modules makes an import fail.
    code = "import sys; sys.modules['torch'] = None; from optimbench.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "diff", str(tmp_path / "old.json"), str(tmp_path / "new.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "1.29x slower" in done.stdout


def test_a_status_says_nothing_of_times_where_nothing_can_be_written(tmp_path: Path) -> None:
    save_recording(on(GPU), tmp_path / "old.json")
    command = [sys.executable, "-m", "optimbench", "diff", str(tmp_path / "old.json"), str(tmp_path / "old.json")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"optimbench: the differences cannot be written: .*No space left on device\n", done.stderr)


def test_every_difference_is_in_one_place(tmp_path: Path) -> None:
    old = recording()
    rows = dict(old.results["plot_02_other"], one=measurement("eager", (3e-4, 3e-4, 3e-4), kernel_time_s=8e-5))
    new = msgspec.structs.replace(old, results=dict(old.results, plot_02_other=rows))
    save_recording(old, tmp_path / "old.json")
    save_recording(new, tmp_path / "new.json")
    found = find_regressions(tmp_path / "old.json", tmp_path / "new.json", threshold=1.05)
    assert found is not None
    parts = [found.slower, found.other, found.within_noise]
    assert all(difference.ratio is not None for part in parts for difference in part)
    assert [str(d) for d in found.slower] == [
        "plot_02_other.one: kernel time 70.0 µs -> 80.0 µs, 1.14x slower [1.12, 1.17]"
    ]
    places = [(d.where, d.said) for part in parts for d in part]
    assert len(places) == len(set(places))
