"""The preview, edited while it serves a small site: what is shown, and what is executed for it."""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from site_builder import INDEX, REFERENCE, REPOSITORY, gone, hang_up_heard, wait_until

from optimbench import RecordedScript, Table, save_recording
from preview import command
from recording_examples import SHA256, environment, recording

# Generous: other tests run beside this one.
PATIENCE_S = 240.0
SCRIPT = '''"""
{title}
=======

First words.
"""

import time

import optimbench as ob

print("run", time.time_ns())
table = ob.Table(name="What it is", columns=("value",), cells=(({value},),))
'''
USES_DEVICES = "str(ob.pick_device().device)"
USES_WORKLOADS = 'len(ob.make_parameters("many_small"))'


class Preview:
    """A running preview of the site in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "OPTIMBENCH", "READTHEDOCS"))}
        # The package's copy is the one that is edited.
        environment = kept | {"PYTHONPATH": str(root / "src"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command([], root, port=0),
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.log = ""
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.log += line

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()
        self._reader.join()

    def until(self, is_true: Callable[[], object], what: str) -> float:
        """Wait, and give the seconds it took."""
        start = time.monotonic()
        while not is_true():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < start + PATIENCE_S, f"{what} did not come\n{self.log}"
            time.sleep(0.2)
        return time.monotonic() - start

    def page(self, name: str) -> str:
        """A page as it is served now, or nothing."""
        found = re.search(r"Serving on (http://[\w.:]+)", self.log)
        if found is None:
            return ""
        try:
            with urllib.request.urlopen(f"{found[1]}/{name}", timeout=10) as answer:
                return str(answer.read().decode())
        except (OSError, http.client.HTTPException):  # Not there yet, or being written.
            return ""

    def run_of(self, number: int) -> str:
        """When a tutorial was executed, as its page says."""
        found = re.search(r"run (\d+)", self.page(f"tutorials/start/plot_0{number}_tutorial.html"))
        return found[1] if found else ""

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def preview(tmp_path: Path) -> Iterator[Preview]:
    root = tmp_path
    (root / "docs" / "api").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text(INDEX.replace("   install\n", "   page\n"))
    (root / "docs" / "page.rst").write_text("Page\n====\n\nFirst words.\n")
    (root / "docs" / "api" / "index.rst").write_text(REFERENCE)
    (root / "docs" / "recordings").mkdir()
    shutil.copytree(REPOSITORY / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    start = root / "gallery" / "start"
    start.mkdir(parents=True)
    for folder in (start, start.parent):
        (folder / "GALLERY_HEADER.rst").write_text("Section\n=======\n\nText.\n")
    for number, value in enumerate([USES_DEVICES, USES_WORKLOADS], 1):
        (start / f"plot_0{number}_tutorial.py").write_text(SCRIPT.format(title=f"Title {number}", value=value))
    running = Preview(root)
    yield running
    running.close()


def test_edits_are_shown_and_only_what_they_change_is_executed(preview: Preview) -> None:
    first, page = "gallery/start/plot_01_tutorial.py", "tutorials/start/plot_01_tutorial.html"
    reference = "api/generated/optimbench.PickedDevice.html"
    preview.until(lambda: preview.run_of(1) and preview.run_of(2), "the site")
    runs = preview.run_of(1), preview.run_of(2)

    # Prose, on a page and in a tutorial; a docstring of the package.
    preview.edit("docs/page.rst", "First words.", "Second words.")
    preview.edit(first, "First words.", "Second words.")
    preview.edit("src/optimbench/devices.py", "A device and the reason for it,", "A device, and why,")
    preview.until(lambda: "Second words." in preview.page("page.html"), "the page's prose")
    preview.until(lambda: "Second words." in preview.page(page), "the tutorial's prose")
    preview.until(lambda: "A device, and why," in preview.page(reference), "the docstring")
    assert (preview.run_of(1), preview.run_of(2)) == runs

    # A recording of another machine, and code of the package that the second tutorial uses.
    name, table = "plot_01_tutorial", Table(name="What it is", columns=("value",), cells=(("recorded",),))
    scripts = {name: RecordedScript(environment=environment(), source_sha256=SHA256)}
    made = recording(scripts=scripts, results={name: {"table": table}})
    save_recording(made, preview.root / "docs" / "recordings" / "nvidia-h200.json")
    preview.edit("src/optimbench/workloads.py", "((1024,),) * 300", "((1024,),) * 200")
    preview.until(lambda: "NVIDIA H200" in preview.page(page), "the recording")
    preview.until(lambda: preview.run_of(2) not in ("", runs[1]), "the second tutorial's new run")
    assert preview.run_of(1) == runs[0]
    second_run = preview.run_of(2)

    # Code that fails, then the code as it was: what the failing run left behind is no output of it.
    preview.edit(first, 'print("run"', 'raise RuntimeError("no")\nprint("run"')
    preview.until(lambda: "Sphinx exited with exit code" in preview.log, "the failure")
    assert "RuntimeError: no" in preview.log
    assert preview.run_of(1) == runs[0]
    preview.edit(first, 'raise RuntimeError("no")\n', "")
    preview.until(lambda: preview.run_of(1) not in ("", runs[0]), "the first tutorial's new run")
    assert preview.run_of(2) == second_run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_server_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    # In place of the server something that writes its process id and would run for long.
    server = "import os, pathlib, time; pathlib.Path('pid').write_text(f'{os.getpid()}.'); time.sleep(1000)"
    code = (
        "import pathlib, sys, preview\n"
        f"preview.ROOT = pathlib.Path({str(tmp_path)!r})\n"
        f"preview.command = lambda *_, **__: [sys.executable, '-c', {server!r}]\n"
        "sys.exit(preview.main([]))"
    )
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY / 'conf'}:{REPOSITORY / 'src'}"}
    with hang_up_heard():
        process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    with process:
        pid = tmp_path / "pid"
        wait_until(lambda: pid.is_file() and pid.read_text().endswith("."))
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    wait_until(lambda: gone(int(pid.read_text()[:-1])), 5.0)
