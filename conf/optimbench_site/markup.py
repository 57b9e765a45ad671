"""Valid and readable HTML where that of the libraries is not. The checks on the built site say if more is needed."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# sphinx-gallery: the introduction of an example is an attribute that HTML does not know and that only a mouse shows. It
# becomes text below the title. Gallery indices nested in one page repeat an empty element with one id; no example has
# tags, so nothing fills it.
_THUMBNAIL = re.compile(
    r'(<div class="sphx-glr-thumbcontainer")([^>]*?) ?tooltip="([^"]*)">(.*?)'
    r'(<div class="sphx-glr-thumbnail-title">.*?</div>)',
    re.DOTALL,
)
_NO_TAGS = re.compile(r"<div id=['\"]sg-tag-list['\"][^>]*></div>")
# sphinx-design: a label that belongs to an input must not say what it controls.
_TAB_LABEL = re.compile(r'(<label) aria-controls="[^"]*"')


def mend_body(body: str) -> str:
    """The text of a page without what a validator or a screen reader trips over."""
    body = _THUMBNAIL.sub(r'\1\2>\4\5<div class="ob-thumbnail-text">\3</div>', body)
    return _TAB_LABEL.sub(r"\1", _NO_TAGS.sub("", body))


def mend_page(
    app: Sphinx,  # noqa: ARG001 - given by Sphinx.
    pagename: str,  # noqa: ARG001
    templatename: str,  # noqa: ARG001
    context: dict[str, Any],
    doctree: nodes.document | None,  # noqa: ARG001
) -> None:
    """Called by Sphinx before it writes a page."""
    if "body" in context:
        context["body"] = mend_body(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.connect("html-page-context", mend_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
