"""What a reader downloads runs: with the site's wheel, torch and matplotlib, in an empty folder, and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from site_checks import Fault, Site
from site_checks.server import served
from site_checks.tools import ToolError

CHECK = "download"
# Executes a notebook with the kernel of the Python that runs this, and prints what its cells printed.
_EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", ""))
"""
N_PARALLEL = 2
TIME_LIMIT_S = 300
# The first cell of a notebook may install from the address where the site will be; it is not there yet.
_SITE_ADDRESS = re.compile(r"https?://[^\s\"']+?/(?=wheels/)")


def tutorial_pages(site: Site) -> list[str]:
    """All pages that offer a script."""
    return [page for page in site.pages if _offered(site, page, ".py")]


def some_pages(pages: Sequence[str], number: int) -> list[str]:
    """So many pages, spread evenly from the first to the last."""
    if number >= len(pages):
        return list(pages)
    return [pages[round(index * (len(pages) - 1) / max(number - 1, 1))] for index in range(number)]


def bad_archives(site: Site) -> list[Fault]:
    """Archives that are broken, lack a file, or hold another version of one that is offered alone."""
    single: dict[str, bytes] = {}
    for page in site.pages:
        for ending in (".py", ".ipynb"):
            single |= {path.name: path.read_bytes() for path in _offered(site, page, ending)}
    found, archived = [], set[str]()
    for page in site.pages:
        for path in _offered(site, page, ".zip"):
            try:
                with zipfile.ZipFile(path) as archive:
                    held = {Path(name).name: archive.read(name) for name in archive.namelist()}
            except (zipfile.BadZipFile, FileNotFoundError) as error:
                found.append(Fault(CHECK, page, f"{path.name}: {error}"))
                continue
            wrong = sorted(name for name, content in held.items() if name in single and single[name] != content)
            found += [Fault(CHECK, page, f"{path.name} holds another {name}") for name in wrong]
            # The archives of the whole gallery are those that no single page offers.
            archived |= held.keys() if not _offered(site, page, ".py") else set()
    found += [Fault(CHECK, name, "in no archive of the gallery") for name in sorted(single.keys() - archived)]
    return found


def reader_environment(site: Site, folder: Path, constraints: Path) -> Path:
    """Make the environment of a reader: the site's wheel, torch and matplotlib.

    Args:
        site: The built site.
        folder: Where to; an environment that is there is replaced.
        constraints: Versions, for pip.

    Returns:
        Its Python.

    Raises:
        ToolError: Something could not be installed.
    """
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    [wheel] = (site.root / "wheels").glob("*.whl")
    _install(python, constraints, wheel, "torch", "matplotlib")
    return python


def failing_downloads(site: Site, pages: Sequence[str], python: Path, constraints: Path) -> list[Fault]:
    """Run the script and the notebook of each page as a reader does.

    Raises:
        ToolError: What notebooks need could not be installed.
    """
    found = failing_scripts(site, pages, python)
    # Only now: a script must not find what a notebook needs.
    _install(python, constraints, "nbclient", "ipykernel")
    return found + failing_notebooks(site, pages, python, constraints)


def failing_scripts(site: Site, pages: Sequence[str], python: Path) -> list[Fault]:
    """The scripts that do not run to their end and print something."""

    def run(page: str, path: Path) -> list[Fault]:
        environment = _environment() | {"MPLBACKEND": "agg"}
        found, said = _run(page, path, path.read_bytes(), [python, path.name], environment)
        return found if found or said.strip() else [Fault(CHECK, page, f"{path.name} printed nothing")]

    return _run_all(site, pages, ".py", run)


def failing_notebooks(site: Site, pages: Sequence[str], python: Path, constraints: Path) -> list[Fault]:
    """The notebooks of which a cell fails; the first one installs the site's wheel."""
    environment = _environment() | {"PIP_CONSTRAINT": str(constraints)}
    wheels = list((site.root / "wheels").glob("*.whl"))
    with served(site.root) as address:

        def run(page: str, path: Path) -> list[Fault]:
            content = _SITE_ADDRESS.sub(address, path.read_text()).encode()
            command: list[str | Path] = [python, "-c", _EXECUTE, path.name]
            return _run(page, path, content, command, environment, *wheels)[0]

        return _run_all(site, pages, ".ipynb", run)


def _run_all(site: Site, pages: Sequence[str], ending: str, run: Callable[[str, Path], list[Fault]]) -> list[Fault]:
    jobs = [(page, path) for page in pages for path in _offered(site, page, ending)]
    with ThreadPoolExecutor(N_PARALLEL) as pool:
        return [fault for faults in pool.map(lambda job: run(*job), jobs) for fault in faults]


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "PYTHON", "VIRTUAL_ENV", "OPTIMBENCH"))}
    # The smallest sizes, and one thread, since two downloads run at a time.
    return kept | {"OPTIMBENCH_QUICK": "1", "OMP_NUM_THREADS": "1"}


def _offered(site: Site, page: str, ending: str) -> list[Path]:
    links = [str(link["href"]) for link in site.page(page).select("a.download[href]")]
    return [((site.root / page).parent / link).resolve() for link in links if link.endswith(ending)]


def _install(python: Path, constraints: Path, *what: str | Path) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", constraints, *what]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"pip could not install {', '.join(map(str, what))}: {done.stdout + done.stderr}")


def _run(
    page: str, path: Path, content: bytes, command: Sequence[str | Path], environment: dict[str, str], *beside: Path
) -> tuple[list[Fault], str]:
    """Run a file alone in a folder, or with the files it is said to need; faults, and what was shown."""
    with tempfile.TemporaryDirectory() as empty:
        for other in beside:
            shutil.copy(other, empty)
        Path(empty, path.name).write_bytes(content)
        try:
            done = subprocess.run(
                command, cwd=empty, env=environment, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return [Fault(CHECK, page, f"{path.name} ran for more than {TIME_LIMIT_S} s")], ""
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        return [Fault(CHECK, page, f"{path.name} ended with status {done.returncode}: {said}")], done.stdout
    # pip's own word: in a notebook its status goes unnoticed.
    words = ("Skipping", "Traceback (most recent call last)", "ERROR: ")
    bad = [word for word in words if word in done.stdout + done.stderr]
    return [Fault(CHECK, page, f"{path.name} says {word!r}") for word in bad], done.stdout
