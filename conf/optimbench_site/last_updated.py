"""When each page last changed, from git: of its own file and of the files it is made from.

sphinx-last-updated-by-git asks git. We tell it what it cannot know: that a tutorial's page is made from its script, and
that a build without git, or from an export or a shallow clone, has no dates and is none the worse for it.
"""

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from optimbench_site.repository import source_file


def add_script(app: Sphinx, docname: str, source: list[str]) -> None:  # noqa: ARG001 - given by Sphinx.
    """Note that a generated page depends on the script it was generated from."""
    settings = app.config.sphinx_gallery_conf
    if docname.startswith(f"{settings['gallery_dirs']}/"):
        path = source_file(docname, app.srcdir, settings)
        if path is not None:
            scripts = (app.srcdir / settings["examples_dirs"]).resolve()
            app.env.note_dependency(str(scripts.parent / path))


def fill_unknown(app: Sphinx, env: BuildEnvironment) -> None:  # noqa: ARG001 - given by Sphinx.
    """Say "not known" of pages that git was not asked about; sphinx-sitemap takes no other absence."""
    dates: dict[str, Any] = env.git_last_updated  # type: ignore[attr-defined]
    for docname, date in dates.items():
        if date is None:
            dates[docname] = (None, False)


def accept_no_dates(app: Sphinx, config: Config) -> None:  # noqa: ARG001 - given by Sphinx.
    """Be silent where git has no date."""
    config.suppress_warnings = [*config.suppress_warnings, "git"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register, after the extension that asks git."""
    app.setup_extension("sphinx_last_updated_by_git")
    app.connect("config-inited", accept_no_dates)
    app.connect("source-read", add_script)
    app.connect("env-updated", fill_unknown, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
