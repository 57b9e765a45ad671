"""Links into the repository and to Colab, where the build's environment says where these are, and none elsewhere.

`OPTIMBENCH_REPOSITORY` is "owner/name" on GitHub; on its own machines GitHub says so itself. For Colab, which opens
notebooks from GitHub alone, `OPTIMBENCH_NOTEBOOKS_BRANCH` names the branch to which the built site is pushed.
"""

import functools
import importlib
import inspect
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from optimbench_site.machine import this_machine
from optimbench_site.notebooks import FOLDER

ROOT = Path(__file__).parents[2]
GENERATED = "api/generated/"


def source_file(docname: str, srcdir: Path, settings: dict[str, Any]) -> str | None:
    """The file that a page is made from, relative to the repository, or None for a page that has no single one.

    Args:
        docname: The page.
        srcdir: The source folder.
        settings: sphinx-gallery's, which say where scripts and their pages lie.
    """
    if docname.startswith(GENERATED):
        return _definition(docname.removeprefix(GENERATED))
    gallery = f"{settings['gallery_dirs']}/"
    if docname.startswith(gallery):
        name = docname.removeprefix(gallery)
        scripts = (srcdir / settings["examples_dirs"]).resolve()
        path = scripts / f"{name}.py"
        if Path(name).name == "index":
            path = (scripts / name).with_name("GALLERY_HEADER.rst")
        return f"{scripts.name}/{path.relative_to(scripts).as_posix()}" if path.is_file() else None
    return f"{srcdir.name}/{docname}.rst" if (srcdir / f"{docname}.rst").is_file() else None


@functools.cache
def _definition(name: str) -> str | None:
    """The file and line that define a public name."""
    parts = name.split(".")
    for n_module in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n_module]))
        except ModuleNotFoundError:
            continue
        for part in parts[n_module:]:
            found = getattr(found, part)
        # A decorator of the standard library would be found in its place.
        found = inspect.unwrap(found)
        try:
            path, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
        except TypeError:  # A value, which Python knows no source of.
            return None
        if path is None or not Path(path).resolve().is_relative_to(ROOT):
            return None
        return f"{Path(path).resolve().relative_to(ROOT).as_posix()}#L{line}"
    return None


def add_source_link(
    app: Sphinx,
    pagename: str,
    templatename: str,  # noqa: ARG001 - given by Sphinx, like the next.
    context: dict[str, Any],
    doctree: Any,
) -> None:
    """Give the template the address of the page's source."""
    repository = app.config.optimbench_repository
    if not repository or doctree is None:
        return
    path = source_file(pagename, app.srcdir, app.config.sphinx_gallery_conf)
    if path is not None:
        context["source_url"] = f"https://github.com/{repository}/blob/{this_machine().commit or 'HEAD'}/{path}"


def colab_address(docname: str, repository: str, branch: str, gallery: str) -> str:
    """Where Colab opens the notebook of a tutorial."""
    name = docname.removeprefix(f"{gallery}/")
    return f"https://colab.research.google.com/github/{repository}/blob/{branch}/{FOLDER}/{name}.ipynb"


def add_colab_button(app: Sphinx, doctree: nodes.document) -> None:
    """Put the button among what sphinx-gallery says of downloads at the top of a tutorial."""
    config, docname = app.config, app.env.docname
    if not config.optimbench_repository or not config.optimbench_notebooks_branch:
        return
    for note in doctree.findall(nodes.note):
        if "sphx-glr-download-link-note" in note["classes"]:
            gallery = config.sphinx_gallery_conf["gallery_dirs"]
            address = colab_address(docname, config.optimbench_repository, config.optimbench_notebooks_branch, gallery)
            link = nodes.reference("", "Open in Colab", refuri=address, classes=["ob-colab"])
            note.append(nodes.paragraph("", "", link))


def check(app: Sphinx, config: Any) -> None:  # noqa: ARG001 - given by Sphinx.
    """Refuse a repository that would make dead links.

    Raises:
        ExtensionError: It is no owner and name.
    """
    named = config.optimbench_repository
    if named and (named.count("/") != 1 or not all(named.split("/")) or ":" in named):
        raise ExtensionError(f"OPTIMBENCH_REPOSITORY is {named!r} (expected owner/name)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_config_value("optimbench_repository", default="", rebuild="env", types=frozenset({str}))
    app.add_config_value("optimbench_notebooks_branch", default="", rebuild="env", types=frozenset({str}))
    app.connect("config-inited", check)
    app.connect("html-page-context", add_source_link)
    app.connect("doctree-read", add_colab_button)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
