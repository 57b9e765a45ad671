"""Every address within the site leads somewhere, and nothing is fetched from another host."""

import functools
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from bs4 import Tag

from site_checks import Fault, Site

# Elements whose address the browser fetches, at once or when it comes near.
_FETCHED = "script, img, source, iframe, video, audio, embed, object"
# A page may name its own address on the web, and where its search is described; those are not fetched.
_NAMED_ONLY = {"alternate", "author", "bookmark", "canonical", "index", "license", "next", "prev", "search"}


def broken_links(site: Site) -> list[Fault]:
    """Links, images and other addresses to a file or an anchor of the site that does not exist."""
    found = []
    anchors = functools.cache(lambda name: _anchors(site, name))
    for page in site.pages:
        for address in dict.fromkeys(_addresses(site, page)):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            name = _resolve(page, unquote(parts.path))
            target = site.root / name
            if target.is_dir():
                name, target = f"{name}/index.html".lstrip("/"), target / "index.html"
            if name.startswith("..") or not target.is_file():
                found.append(Fault("broken link", page, f"{address} leads to no file"))
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in anchors(name):
                found.append(Fault("broken link", page, f"{address} leads to no element of {name}"))
    return found


def foreign_addresses(site: Site) -> list[Fault]:
    """What a page says is to be fetched from another host; the browser's own check sees what it then fetched."""
    found = []
    for page in site.pages:
        soup = site.page(page)
        fetched = [value for tag in soup.select(_FETCHED) for value in _values(tag, "src", "srcset", "data")]
        links = [link for link in soup.select("link[href]") if not set(link.get_attribute_list("rel")) <= _NAMED_ONLY]
        fetched += [str(link["href"]) for link in links]
        found += [Fault("other host", page, address) for address in fetched if urlsplit(address).netloc]
    return found


def _addresses(site: Site, page: str) -> Iterator[str]:
    for tag in site.page(page).select("[href], [src], [srcset], [data], form[action]"):
        yield from _values(tag, "href", "src", "srcset", "action", *(["data"] if tag.name == "object" else []))


def _values(tag: Tag, *names: str) -> list[str]:
    values = []
    for name in names:
        value = str(tag.get(name, ""))
        # Each candidate of a srcset is an address and a width or density.
        values += [part.split()[0] for part in value.split(",") if part.split()] if name == "srcset" else [value]
    return [value for value in values if value]


def _resolve(page: str, path: str) -> str:
    if not path:
        return page
    parts: list[str] = []
    whole = PurePosixPath(path.lstrip("/")) if path.startswith("/") else PurePosixPath(page).parent / path
    for part in whole.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _anchors(site: Site, name: str) -> set[str]:
    soup = site.page(name)
    named = {str(tag["name"]) for tag in soup.select("a[name]")}
    # "top" leads to the top of every page.
    return {"top"} | named | {str(tag["id"]) for tag in soup.select("[id]")}
