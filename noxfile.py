"""Everything that is checked or built here is one command: `nox -s NAME`. `nox -l` lists the names.

With `--no-venv` the sessions run in the Python that runs nox and install nothing, for images that have torch already.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
# uv resolves torch to a CUDA build of several gigabytes; pip takes the CPU build that constraints.txt names.
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests"]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
SITE = ROOT / "build" / "html"
# What sphinx-gallery and autosummary write between the sources. Removed before every build, so that each tutorial is
# executed and none that was deleted keeps its page.
GENERATED = [ROOT / "docs" / "tutorials", ROOT / "docs" / "api" / "generated", ROOT / "build" / "doctrees"]
# A log setting of the user's shell would change what the tutorials print.
ENVIRONMENT = {"TORCH_LOGS": None, "PYTHONPATH": str(ROOT / "src"), "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}


def install(session: nox.Session, *groups: str) -> None:
    """Install this package, editable, and the named dependency groups; nothing in an environment that is not ours."""
    session.env.update(ENVIRONMENT)
    if session.venv_backend != "none":
        session.install(*nox.project.dependency_groups(PYPROJECT, *groups), "-e", ".")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, spelling and reST."""
    install(session, "lint", "test", "docs")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("codespell")
    ignored = [word for folder in GENERATED for word in ("--ignore", str(folder.relative_to(ROOT)))]
    options = ["--max-line-length", "120", "--enable", "all", *ignored]
    session.run("sphinx-lint", *options, "docs", "gallery", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; `-- ARGUMENTS` go to pytest."""
    install(session, "test", "docs")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/html, executing every tutorial; `-- --require-cuda` refuses to do so on a CPU."""
    install(session, "docs")
    unknown = set(session.posargs) - {"--require-cuda"}
    if unknown:
        session.error(f"unknown arguments {sorted(unknown)} (expected --require-cuda or none)")
    if session.posargs:
        session.run("python", "-c", "import optimbench; print(optimbench.require_cuda())")
    fresh, old = SITE.with_name("html.new"), SITE.with_name("html.old")
    for folder in [*GENERATED, fresh, old]:
        shutil.rmtree(folder, ignore_errors=True)
    options = ["-W", "-n", "-c", "conf", "-d", "build/doctrees"]
    session.run("python", "-m", "sphinx", *options, "docs", str(fresh))
    # An example that ends the process takes Sphinx with it, whatever its exit status says.
    if not (fresh / "objects.inv").is_file():
        session.error("Sphinx ended without a site: a tutorial must have ended the process")
    # Only a complete site replaces the one before it.
    if SITE.exists():
        SITE.rename(old)
    fresh.rename(SITE)
    shutil.rmtree(old, ignore_errors=True)
    session.log(f"The site is {SITE / 'index.html'}")


@nox.session
def build(session: nox.Session) -> None:
    """Build the sdist and the wheel into build/dist and test what is in them."""
    install(session, "build", "test")
    target = ROOT / "build" / "dist"
    shutil.rmtree(target, ignore_errors=True)
    session.run("python", "-m", "build", "--no-isolation", "--outdir", str(target))
    session.env["OPTIMBENCH_DIST"] = str(target)
    session.run("python", "-m", "pytest", "tests/test_distribution.py")
