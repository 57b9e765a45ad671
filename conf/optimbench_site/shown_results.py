"""A page that shows results is read again when one of them has changed, and not in every build."""

from collections.abc import Iterable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from optimbench_site import sources
from optimbench_site.stored import ENDING

# Under this name Sphinx keeps with a page which files there were.
_FILES = "optimbench_results"


def note_results(env: BuildEnvironment, own: Iterable[Path] = ()) -> None:
    """Note what the page that is being read depends on.

    Args:
        env: Sphinx's own.
        own: The files with this build's results that the page shows, beside all stored recordings.
    """
    srcdir = Path(env.srcdir)
    # The package says how a result looks.
    looks = [
        *(sources.PACKAGE / name for name in ("_format.py", "figures.py")),
        *(sources.PACKAGE / "results").glob("*.py"),
    ]
    for path in [*_recordings(srcdir), *looks, *own]:
        if path.is_file():
            env.note_dependency(str(path))
    env.metadata[env.docname][_FILES] = _names(srcdir)


def outdated(_: Sphinx, env: BuildEnvironment, *__: object) -> list[str]:
    """The pages that were read when there were other files with results: Sphinx knows only those that there were."""
    names = _names(Path(env.srcdir))
    return [page for page, kept in env.metadata.items() if kept.get(_FILES, names) != names]


def _recordings(srcdir: Path) -> list[Path]:
    return sorted((srcdir / "recordings").glob("*.json"))


def _names(srcdir: Path) -> str:
    return " ".join(
        str(path.relative_to(srcdir)) for path in [*_recordings(srcdir), *sorted(srcdir.rglob(f"*{ENDING}"))]
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
