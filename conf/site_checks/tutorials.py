"""Every tutorial has run: it took time, it printed something, it skipped nothing, and nothing went wrong."""

import re

from site_checks import Fault, Site

CHECK = "tutorial"


def unexecuted_tutorials(site: Site, n_expected: int) -> list[Fault]:
    """The tutorials whose page does not show that they have run.

    Args:
        site: The built site.
        n_expected: The number of scripts in the gallery.
    """
    pages = [page for page in site.pages if re.fullmatch(r"tutorials/.*/plot_\d\d[a-z]?_\w+\.html", page)]
    found = [Fault(CHECK, page, said) for page in pages for said in _said_of_one(site, page)]
    if len(pages) != n_expected:
        found.append(Fault(CHECK, "tutorials", f"{len(pages)} pages for {n_expected} scripts"))
    return found


def _said_of_one(site: Site, page: str) -> list[str]:
    article = site.page(page).select_one("article")
    if article is None:
        return ["no text"]
    said = []
    timing = article.select_one(".sphx-glr-timing")
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", timing.get_text() if timing else "")]
    if not any(numbers):
        said.append("no running time, or none above zero")
    printed = "\n".join(block.get_text() for block in article.select(".sphx-glr-script-out"))
    if not printed.strip():
        said.append("printed nothing")
    if not article.select(".ob-result, .sphx-glr-single-img, .sphx-glr-multi-img"):
        said.append("no result and no figure")
    # In what was printed, and in what a result says. Prose and code may speak of either.
    shown = printed + "\n".join(block.get_text() for block in article.select(".ob-result"))
    said += [f"says {word!r}" for word in ("Skipping", "Traceback (most recent call last)") if word in shown]
    if article.select(".sphx-glr-pytb, .sphx-glr-script-out.sphx-glr-fail"):
        said.append("shows a traceback")
    return said
