"""Every tutorial runs as a script, as it does for a reader who downloads it; found by its name, none listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "gallery"
SCRIPTS = sorted(GALLERY.rglob("plot_*.py"))
TIME_LIMIT_S = 200


def test_tutorials_are_found() -> None:
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_tutorial_runs_at_its_smallest_size_in_an_empty_folder(script: Path, tmp_path: Path) -> None:
    # No display, and no log setting of the caller's shell. One thread: two scripts run at a time, and threads that wait
    # for each other on a processor that is busy otherwise are slower than one by far.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_LOGS")}
    # Nor does each empty compile cache have to find out anew which instructions the C++ compiler can use.
    environment |= {
        "OPTIMBENCH_QUICK": "1",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    command = [sys.executable, str(script)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.strip(), "the script printed nothing"
    assert "Traceback" not in said
    assert "Skipping" not in said
