"""Long outputs are folded, with the number of their lines; what a reader prints holds them whole."""

from docutils import nodes
from sphinx.application import Sphinx

# More lines than a screen shows.
MAX_LINES = 40


def fold(app: Sphinx, doctree: nodes.document) -> None:  # noqa: ARG001 - given by Sphinx.
    """Fold each output of a tutorial that has more than `MAX_LINES` lines."""
    for block in list(doctree.findall(nodes.literal_block)):
        n_lines = len(block.astext().splitlines())
        if "sphx-glr-script-out" in block["classes"] and n_lines > MAX_LINES:
            before = f'<details class="ob-log ob-output"><summary>Output: {n_lines} lines</summary>'
            # Not by replace_self(), which would give the first of these the block's classes.
            at = block.parent.index(block)
            block.parent.insert(at + 1, nodes.raw("", "</details>", format="html"))
            block.parent.insert(at, nodes.raw("", before, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.connect("doctree-read", fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
