"""Single backticks in docstrings: a link where they hold the name of something that is documented, else code."""

import functools

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

import optimbench
from optimbench_site.inventories import ADDRESSES, FOLDER


class Name(SphinxRole):
    """The default role of this site."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Make a reference that Sphinx resolves, or a literal."""
        literal = nodes.literal(self.rawtext, self.text, classes=["xref", "py", "py-obj"])
        target = target_of(self.text)
        if target is None:
            return [literal], []
        reference = addnodes.pending_xref(
            self.rawtext,
            literal,
            refdomain="py",
            reftype="obj",
            reftarget=target,
            refexplicit=False,
            refdoc=self.env.docname,
        )
        self.set_source_info(reference)
        return [reference], []


def target_of(text: str) -> str | None:
    """The full name of what a text names, or None where that has no page."""
    owner, _, member = text.partition(".")
    if owner in optimbench.__all__:
        found = getattr(optimbench, owner)
        return f"optimbench.{text}" if not member or hasattr(found, member) else None
    return text if "." in text and text in _names_of_others() else None


@functools.cache
def _names_of_others() -> set[str]:
    """Everything of Python's domain in the lists of other projects' names."""
    lines = [line for name in ADDRESSES for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()]
    return {line.split()[0] for line in lines if not line.startswith("#") and " py:" in line}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_role("name", Name())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
