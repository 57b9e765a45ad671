"""A page that shows results is read again when one of them has changed, and not in every build.

They are no dependencies in Sphinx's sense, by which a page would be as new as the newest recording.
"""

import hashlib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from optimbench_site import sources
from optimbench_site.stored import ENDING

# Under this name Sphinx keeps with a page which files there were when it was read.
_STATE = "optimbench_results"
_OF_ALL_PAGES = "*"


def note_results(env: BuildEnvironment, *, of_all_pages: bool = False) -> None:
    """Note that the page that is being read shows recordings and its own results, or those of all tutorials."""
    scope = _OF_ALL_PAGES if of_all_pages else env.docname
    env.metadata[env.docname][_STATE] = _state(Path(env.srcdir), scope)


def outdated(_: Sphinx, env: BuildEnvironment, *__: object) -> list[str]:
    """The pages for which other files are there now."""
    srcdir = Path(env.srcdir)
    kept = {page: said[_STATE] for page, said in env.metadata.items() if _STATE in said}
    return [page for page, state in kept.items() if state != _state(srcdir, state.split()[0])]


def _state(srcdir: Path, scope: str) -> str:
    # The package says how a result looks.
    files = [sources.PACKAGE / "_format.py", sources.PACKAGE / "figures.py", *sources.PACKAGE.glob("results/*.py")]
    files += srcdir.glob("recordings/**/*.json")
    if scope == _OF_ALL_PAGES:
        results = list(srcdir.rglob(f"*{ENDING}"))
        # Their scripts hold the titles.
        files += [*results, *(path.with_name(path.name.removesuffix(ENDING) + ".py") for path in results)]
    else:
        files.append(srcdir / f"{scope}{ENDING}")
    said = [f"{path} {path.stat().st_mtime_ns}" for path in sorted(files) if path.is_file()]
    digest = hashlib.sha256("\n".join(said).encode()).hexdigest()
    return f"{scope} {digest}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
