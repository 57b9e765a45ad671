"""Every page names the machine that built it."""

import functools
from typing import Any

from sphinx.application import Sphinx

from optimbench import Environment, collect_environment


@functools.cache
def this_machine() -> Environment:
    """The machine that builds, described once for all pages."""
    return collect_environment()


def add_machine(
    app: Sphinx,  # noqa: ARG001 - given by Sphinx, like all of these.
    pagename: str,  # noqa: ARG001
    templatename: str,  # noqa: ARG001
    context: dict[str, Any],
    doctree: Any,  # noqa: ARG001
) -> None:
    """Give the template the machine."""
    context["machine"] = this_machine()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.connect("html-page-context", add_machine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
