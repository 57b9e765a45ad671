"""A tutorial that raises, exits, dies or hangs costs the build, and nothing else."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from site_builder import (
    DATA,
    REPOSITORY,
    Site,
    build_site,
    clean_environment,
    gone,
    hang_up_heard,
    run_sphinx,
    wait_until,
    write_sources,
)

LIMIT_S = 8.0
# The end of the report's first line, and a line of the tutorial's output that it repeats.
FAILING = {
    "plot_03_raises": (
        "print('made up')\n\n# %%\n# Second block.\nx = 1\n\n\ndef wrong():\n    raise RuntimeError('no\\nstep')\n\n\n"
        "wrong()",
        "lines 12 to 19, at line 16: RuntimeError: no",
        "made up",
    ),
    "plot_04_exits": ("import sys\n\nprint('bye')\nsys.exit(0)", "at line 11: asked to exit with status 0", "bye"),
    "plot_05_leaves": (
        "import os\n\nprint('leaving')\nos._exit(0)",
        "lines 8 to 11: ended its process with status 0",
        "leaving",
    ),
    "plot_06_crashes": (
        "import ctypes\n\nprint('here')\nctypes.string_at(0)",
        "lines 8 to 11, at line 11: died of SIGSEGV",
        "here",
    ),
    "plot_07_killed": (
        "import os\n\nos.write(2, b'from below\\n')\nos.kill(os.getpid(), 9)",
        "lines 8 to 11: died of SIGKILL, as a process does when the system's memory is short",
        "from below",
    ),
    # It holds Python's lock for good, and has started a process in a session of its own.
    "plot_08_hangs": (
        "import ctypes\nimport os\nimport subprocess\n\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "with open(os.environ['PIDS'], 'w') as file:\n    print(os.getpid(), child.pid, file=file)\n"
        "print('still there')\nctypes.PyDLL(None).sleep(1000)",
        f"at line 16: had not ended after {LIMIT_S:g} s (OPTIMBENCH_PAGE_LIMIT_S sets the limit)",
        "still there",
    ),
    "plot_09_too_large": (
        "import torch\n\ntorch.empty(10**15)",
        "at line 10: RuntimeError: [enforce fail at alloc_cpu.cpp",
        "RuntimeError: [enforce fail at alloc_cpu.cpp",
    ),
}
LAST = "plot_10_last"


class Outcome(NamedTuple):
    before: dict[str, str]
    failed: Site
    after: dict[str, str]
    repaired: Site


def write_page(gallery: Path, name: str, code: str) -> None:
    (gallery / "start" / f"{name}.py").write_text(f'"""\nTitle\n=====\n\nA page.\n"""\n\n{code}\n')


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and ".doctrees" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def pids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pids") / "hanging"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, pids: Path) -> Outcome:
    """A good site, then the same with tutorials that fail added, then without them again."""
    root = tmp_path_factory.mktemp("failing")
    good = build_site(root, DATA)
    assert good.status == 0, good.log
    before = contents(root / "html")
    for name, (code, _, _) in FAILING.items():
        write_page(root / "gallery", name, code)
    write_page(root / "gallery", LAST, "import os\n\nos.system('echo written by a child')\nprint('the last')")
    failed = run_sphinx(root, OPTIMBENCH_PAGE_LIMIT_S=str(LIMIT_S), PIDS=str(pids))
    after = contents(root / "html")
    for name in FAILING:
        (root / "gallery" / "start" / f"{name}.py").unlink()
        for path in (root / "docs" / "tutorials").rglob(f"*{name}*"):
            path.unlink()
    # As after a kill: sphinx-gallery notes that it has executed a script before it writes the page.
    (root / "docs" / "tutorials" / "start" / "plot_02_starts_afresh.rst").unlink()
    return Outcome(before, failed, after, run_sphinx(root))


def test_build_fails_and_leaves_the_site_as_it_was(outcome: Outcome) -> None:
    assert outcome.failed.status != 0
    assert f"{len(FAILING)} of {len(FAILING) + 3} tutorials failed, so no page is written" in outcome.failed.log
    assert len(outcome.before) > 20
    assert outcome.after == outcome.before


@pytest.mark.parametrize("name", FAILING)
def test_report_names_page_block_and_last_output(outcome: Outcome, name: str) -> None:
    _, first_line, output = FAILING[name]
    report = outcome.failed.log.partition("tutorials failed, so no page")[2]
    found = re.search(rf"^ *start/{name}\.py, (.*)\n((?: +\| ?.*\n)+)", report, re.MULTILINE)
    assert found, report
    assert first_line in found[1]
    assert output in found[2]
    assert "page_process.py" not in found[2], "our own frames say nothing"


def test_others_are_executed_and_need_not_be_again(outcome: Outcome) -> None:
    assert re.search(rf"10 of 10: start/{LAST}, \d+\.\d s$", outcome.failed.log, re.MULTILINE)
    assert "written by a child" in outcome.failed.log
    assert outcome.repaired.status == 0, outcome.repaired.log
    assert outcome.repaired.log.count(", unchanged") == 2
    assert "2 of 3: start/plot_02_starts_afresh, same code, so its outputs are kept" in outcome.repaired.log
    page = outcome.repaired.page("tutorials/start/plot_02_starts_afresh.html")
    assert "graphs: 3" in page.select_one(".sphx-glr-script-out").get_text()  # type: ignore[union-attr]
    page = outcome.repaired.page(f"tutorials/start/{LAST}.html")
    assert "the last" in page.select_one(".sphx-glr-script-out").get_text()  # type: ignore[union-attr]


def test_nothing_of_a_hanging_page_is_left(outcome: Outcome, pids: Path) -> None:
    assert outcome.failed.status != 0
    assert [pid for pid in map(int, pids.read_text().split()) if not gone(pid)] == []


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "long"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    site = build_site(tmp_path, DATA, OPTIMBENCH_PAGE_LIMIT_S=limit)
    assert site.status != 0
    assert f"OPTIMBENCH_PAGE_LIMIT_S is '{limit}' (expected a positive number of seconds)" in site.log
    assert "generating gallery" not in site.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_sphinx_and_the_page(tmp_path: Path, number: signal.Signals) -> None:
    write_sources(tmp_path, DATA)
    shutil.rmtree(tmp_path / "gallery" / "start" / "__pycache__", ignore_errors=True)
    for path in (tmp_path / "gallery" / "start").glob("*.py"):
        path.unlink()
    write_page(tmp_path / "gallery", "plot_01_hangs", FAILING["plot_08_hangs"][0])
    pids = tmp_path / "pids"
    command = [sys.executable, "-m", "sphinx", "-c", str(REPOSITORY / "conf"), "docs", "html"]
    environment = clean_environment(PIDS=str(pids))
    with hang_up_heard():
        sphinx = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    with sphinx:
        wait_until(lambda: pids.is_file() and len(pids.read_text().split()) == 2)
        page, child = map(int, pids.read_text().split())
        sphinx.send_signal(number)
        assert sphinx.wait(30) != 0
    wait_until(lambda: gone(page), 5.0)
    if number != signal.SIGKILL:
        wait_until(lambda: gone(child), 5.0)
    elif not gone(child):  # Nobody was left to end it.
        os.kill(child, signal.SIGKILL)
    assert not (tmp_path / "html" / "index.html").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_memory_that_runs_out_costs_one_page_and_is_free_for_the_next(tmp_path: Path) -> None:
    write_sources(tmp_path, DATA)
    for path in (tmp_path / "gallery" / "start").glob("*.py"):
        path.unlink()
    # Two that hold so much at a time do not fit.
    hold = (
        "import torch\n\nsize = torch.cuda.mem_get_info()[1] * 3 // 4\n"
        "held = torch.ones(size, dtype=torch.uint8, device='cuda')"
    )
    ask = f"{hold}\nprint('holding')\nmore = held.clone()"
    for name, code in (("plot_01_holds", hold), ("plot_02_asks_for_more", ask), ("plot_03_holds", hold)):
        write_page(tmp_path / "gallery", name, code)
    site = run_sphinx(tmp_path)
    assert site.status != 0
    report = site.log.partition("1 of 3 tutorials failed, so no page is written")[2]
    assert "start/plot_02_asks_for_more.py, lines 8 to 13, at line 13: torch.OutOfMemoryError: CUDA out of" in report
    assert "| holding" in report
    assert len(re.findall(r" of 3: start/plot_0[13]_holds, \d+\.\d s$", site.log, re.MULTILINE)) == 2
    assert site.log.count(", FAILED") == 1
