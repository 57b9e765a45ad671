"""What search engines and other sites read: descriptions, sizes of images, redirects, robots.txt and a card.

None of it needs the address of the site except the card and the line in robots.txt, which are left out without it.
"""

import html
import posixpath
import re
import textwrap
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import imagesize
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError

from optimbench_site import headline

# Addresses without a page of their own, and where they lead: add the old name of a page that is renamed, relative to
# the site's root and without ".html", with the new page's path from there.
REDIRECTS = {
    "api": "api/index.html",
    "tutorials": "tutorials/index.html",
}
CARD = "headline-card.png"
CARD_DEVICE = "nvidia-h200"
_DESCRIPTION_LENGTH = 160
_REDIRECT = Path(__file__).parents[1] / "_templates" / "redirect.html"
_IMAGE = re.compile(r"<img\b(?![^>]*\b(?:width|height)=)[^>]*?\bsrc=\"([^\"]+)\"")


def description(doctree: nodes.document) -> str:
    """The first sentences of a page, as many as a search engine shows."""
    for paragraph in doctree.findall(nodes.paragraph):
        # Not one in a note, a table or a list.
        if not isinstance(paragraph.parent, nodes.section | addnodes.desc_content):
            continue
        words = " ".join(paragraph.astext().split())
        if words:
            return textwrap.shorten(words, _DESCRIPTION_LENGTH, placeholder=" …")
    return ""


def add_to_page(
    app: Sphinx,
    pagename: str,
    templatename: str,  # noqa: ARG001 - given by Sphinx.
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Describe the page, and give its images the sizes they have, so that nothing moves when they arrive."""
    words = description(doctree) if doctree is not None else ""
    words = words or f"{context.get('title') or pagename}: {app.config.project}, PyTorch optimizer steps measured."
    # A title may hold markup.
    escaped = html.escape(html.unescape(re.sub(r"<[^>]+>", "", words)))
    context["metatags"] = f'{context.get("metatags", "")}\n<meta name="description" content="{escaped}">'
    if "body" in context:
        context["body"] = _IMAGE.sub(lambda found: _sized(app, found), context["body"])


def _sized(app: Sphinx, image: re.Match[str]) -> str:
    """The image with its width and height, if it is one that this build copies."""
    name = image[1].rpartition("/")[2]
    # Sphinx copies images when all pages are written; sphinx-gallery has copied its figures by now.
    known = [Path(app.srcdir) / path for path, (_, copied) in app.env.images.items() if copied == name]
    path = known[0] if known else app.outdir / "_images" / name
    width, height = imagesize.get(path) if path.is_file() else (-1, -1)
    if width <= 0 or height <= 0:
        return image[0]
    return image[0].replace("<img", f'<img width="{round(width)}" height="{round(height)}"', 1)


def check_redirects(redirects: Mapping[str, str], pages: Container[str]) -> None:
    """Refuse a redirect from a page that exists, or to one that does not.

    Raises:
        ExtensionError: There is one.
    """
    for old, new in redirects.items():
        if old in pages:
            raise ExtensionError(f"the redirect {old!r} would overwrite a page of that name")
        if new.partition("#")[0].removesuffix(".html") not in pages:
            raise ExtensionError(f"the redirect {old!r} leads to {new!r}, which is no page (expected 'name.html')")


def check(app: Sphinx) -> list[Any]:
    """Called before the redirects are written; has no page to add."""
    check_redirects(REDIRECTS, app.env.found_docs)
    return []


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write robots.txt and, where the address is known, the picture that other sites show of this one."""
    if exception is not None or app.builder.format != "html":
        return
    address = app.config.html_baseurl
    lines = ["User-agent: *", "Allow: /", *([f"Sitemap: {address}sitemap.xml"] if address else [])]
    (app.outdir / "robots.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if address and app.config.ogp_image:
        shown = headline.headline_of(app.srcdir, CARD_DEVICE)
        title = "How far is an optimizer's step from the memory limit?"
        headline.save(shown, app.outdir / CARD, size_in=headline.CARD_SIZE_IN, title=title)


def configure(app: Sphinx, config: Config) -> None:  # noqa: ARG001 - given by Sphinx.
    """Tell the extension that writes redirects what to write."""
    # Relative, so that they hold wherever the site lies.
    config.redirects = {old: posixpath.relpath(new, posixpath.dirname(old) or ".") for old, new in REDIRECTS.items()}
    config.redirect_html_template_file = str(_REDIRECT)


def choose_card(app: Sphinx) -> None:
    """Announce the card where there is an address and a recording to draw it from."""
    if not app.config.html_baseurl:
        return
    try:
        shown = headline.headline_of(app.srcdir, CARD_DEVICE)
    except LookupError:
        return
    app.config.ogp_image = f"{app.config.html_baseurl}{CARD}"
    app.config.ogp_image_alt = shown.words()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.setup_extension("sphinx_reredirects")
    app.connect("config-inited", configure)
    app.connect("builder-inited", choose_card, priority=200)
    # Before the extension that writes them.
    app.connect("html-collect-pages", check, priority=100)
    # Before the extension that makes cards, which leaves a description alone that is there.
    app.connect("html-page-context", add_to_page, priority=400)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
