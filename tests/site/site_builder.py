"""Small sites, built with the configuration of the real one."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bs4 import BeautifulSoup

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "site" / "data"
INDEX = """Home
====

.. toctree::

   tutorials/index
   install
   api/index
"""
REFERENCE = """Reference
=========

.. currentmodule:: optimbench

.. autosummary::
   :toctree: generated

   pick_device
   PickedDevice
   Table
   Result
   InvalidArgumentError
   OptimBenchError
"""


class Site:
    """The outcome of one build."""

    def __init__(self, root: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.html = root / "html"
        self.status = done.returncode
        self.log = done.stdout + done.stderr

    def page(self, name: str) -> BeautifulSoup:
        """One built page, parsed."""
        return BeautifulSoup((self.html / name).read_text(), "html.parser")

    def pages(self) -> list[Path]:
        """Every built page, without those that lead to another."""
        return sorted(path for path in self.html.rglob("*.html") if 'http-equiv="refresh"' not in path.read_text())


def build_site(
    root: Path,
    gallery: Path,
    pages: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    **environment: str,
) -> Site:
    """Build the scripts in `gallery` and an excerpt of the reference, with our own configuration.

    `pages` are files of the source folder, by name, and their text; they may replace those that are there.
    """
    write_sources(root, gallery, pages)
    return run_sphinx(root, *options, **environment)


def write_sources(root: Path, gallery: Path, pages: Mapping[str, str] | None = None) -> None:
    """Write what `build_site` builds."""
    shutil.copytree(gallery, root / "gallery")
    (root / "docs" / "api").mkdir(parents=True)
    (root / "docs" / "index.rst").write_text(INDEX)
    (root / "docs" / "api" / "index.rst").write_text(REFERENCE)
    shutil.copy(REPOSITORY / "docs" / "install.rst", root / "docs")
    for name, text in (pages or {}).items():
        path = root / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_sphinx(root: Path, *options: str, **environment: str) -> Site:
    """Build what lies in a folder, for the first time or again."""
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-c", str(REPOSITORY / "conf"), *options, "docs", "html"]
    done = subprocess.run(
        command,
        cwd=root,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Site(root, done)


def clean_environment(**more: str) -> dict[str, str]:
    """What the caller's shell says about torch's logs or the site's address must not decide a test."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "OPTIMBENCH", "READTHEDOCS", "GITHUB"))}
    return kept | more


@contextlib.contextmanager
def hang_up_heard() -> Iterator[None]:
    """Let what is started inside be ended by a closed terminal, also where the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # Ended; whoever adopted it has not looked yet.


def wait_until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait for something, and fail where it does not come."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
