"""Links from decorators to their documentation.

sphinx-gallery turns the names in a tutorial's code into links, but not those behind an `@`: the highlighter makes
`@torch` one token, which is nobody's name. Splitting it in two lets `@torch.compile` be found like any other name.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pygments.filter import Filter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Name
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_gallery import _doctree_links


class SplitDecorators(Filter):
    """Make two tokens of `@name`."""

    def filter(self, lexer: Lexer | None, stream: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:  # noqa: ARG002
        """Pass every other token on."""
        for kind, text in stream:
            if kind is Name.Decorator and text.startswith("@"):
                yield Name.Decorator, "@"
                yield Name.Decorator, text[1:]
            else:
                yield kind, text


def lexer_with_split_decorators(name: str) -> Lexer:
    """The highlighter of this name, with decorators in two tokens."""
    lexer = get_lexer_by_name(name)
    lexer.add_filter(SplitDecorators())
    return lexer


def setup(app: Sphinx) -> dict[str, bool]:
    """Give sphinx-gallery our highlighter; it has no setting for that."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    if not hasattr(_doctree_links, "get_lexer_by_name"):
        raise ExtensionError("sphinx_gallery._doctree_links has no get_lexer_by_name any more")
    _doctree_links.get_lexer_by_name = lexer_with_split_decorators
    return {"parallel_read_safe": True, "parallel_write_safe": True}
