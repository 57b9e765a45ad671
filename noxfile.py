"""Everything that is checked or built here is one command: `nox -s NAME`. `nox -l` lists the names.

With `--no-venv` the sessions run in the Python that runs nox and install nothing, for images that have torch already.
"""

import os
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
# uv resolves torch to a CUDA build of several gigabytes; pip takes the CPU build that constraints.txt names.
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
# Logs and colours would change what is printed; without bytecode every process would compile torch's sources anew.
UNSET = dict.fromkeys(("TORCH_LOGS", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE"))
ENVIRONMENT = {**UNSET, "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
# This package from its sources; behind it what the caller has put there, as on a GPU machine without a network.
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))


def install(session: nox.Session, *groups: str, **environment: str) -> None:
    """Install this package, editable, and the named dependency groups; nothing in an environment that is not ours."""
    install_only(session, *nox.project.dependency_groups(PYPROJECT, *groups), "-e", ".", **environment)


def install_only(session: nox.Session, *needs: str, **environment: str) -> None:
    """Install what is named, for sessions that do without torch."""
    session.env.update(ENVIRONMENT | environment)
    if session.venv_backend != "none":
        session.install(*needs)


def run_script(session: nox.Session, name: str, *groups: str) -> None:
    """Run a script of ours, with the session's arguments."""
    install(session, *groups)
    session.run("python", f"conf/{name}.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, spelling, reST and workflows."""
    install(session, "lint", "test", "docs", "site")
    for command in ("ruff check .", "ruff format --check .", "mypy", "codespell", "jactionlint --strict-exit"):
        session.run(*command.split())
    session.run("zizmor", "--offline", "--persona=pedantic", ".github")
    options = ["--max-line-length=120", "--enable=all", "--ignore=docs/tutorials", "--ignore=docs/api/generated"]
    session.run("sphinx-lint", *options, "docs", "gallery", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
    session.run("python", "conf/lint_prose.py", "gallery", "src")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, two at a time; `-- ARGUMENTS` go to pytest."""
    install(session, "test", "docs")
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/html, executing every tutorial; `-- --help` lists the options."""
    run_script(session, "build_site", "docs")


@nox.session
def site(session: nox.Session) -> None:
    """Check the built site in a browser, and that its downloads run; `-- --help` lists the options."""
    install_only(session, *nox.project.dependency_groups(PYPROJECT, "site"))
    session.run("python", "-m", "pytest", "-n", "2", "tests/site_checks")
    session.run("python", "conf/check_site.py", *session.posargs)


@nox.session(default=False)
def preview(session: nox.Session) -> None:
    """Serve the site, and after each edit execute and show what it changes; `-- --help` lists the options."""
    run_script(session, "preview", "docs")


@nox.session(default=False)
def linkcheck(session: nox.Session) -> None:
    """Ask every address that the site links to whether it is there; needs the network, executes no tutorial."""
    run_script(session, "linkcheck", "docs")


@nox.session
def record(session: nox.Session) -> None:
    """Run all tutorials and store the results as this machine's recording; `-- --help` lists the options."""
    run_script(session, "record", "docs")


@nox.session
def diff(session: nox.Session) -> None:
    """Compare the site's results with this device's recording; `-- OLD NEW` compares others, `-- --help` tells how."""
    install_only(session, *[need for need in PYPROJECT["project"]["dependencies"] if not need.startswith("torch")])
    words = session.posargs or ["docs/recordings", "build/html/results.json"]
    session.run("python", "-m", "optimbench", "diff", *words)


@nox.session(python="3.11")
def minimums(session: nox.Session) -> None:
    """Run the tests with the oldest versions that pyproject.toml admits; `-- --torch` takes the oldest torch, too."""
    bounds = str(ROOT / "build" / "minimums.txt")
    session.run("python", "conf/lower_bounds.py", bounds, *session.posargs)
    install(session, "test", "docs", PIP_CONSTRAINT=bounds)
    # Old versions warn of what newer ones that they use have deprecated.
    session.run("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", "-W", "default")


@nox.session
def audit(session: nox.Session) -> None:
    """Look the pinned versions up in the database of known vulnerabilities; needs the network."""
    install_only(session, *nox.project.dependency_groups(PYPROJECT, "audit"))
    session.run("python", "conf/audit.py", "constraints.txt")


@nox.session(default=False)
def wheelhouse(session: nox.Session) -> None:
    """Collect wheels for a machine without network, torch left out; `-- 3.12` names its Python."""
    session.run("python", "conf/wheelhouse.py", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel into build/dist, test what is in them, and install the wheel."""
    run_script(session, "build_packages", "dist", "test")
