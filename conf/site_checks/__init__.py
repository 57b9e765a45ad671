"""Checks on the built site, each a function from a site to the faults it finds. `conf/check_site.py` runs them."""

from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup


class Fault(NamedTuple):
    """One thing that is wrong with a page."""

    check: str
    page: str
    said: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.page}: {self.check}: {self.said}"


class Site:
    """A folder of built pages; each is read and parsed once."""

    def __init__(self, root: Path) -> None:
        """Find the pages in a folder."""
        self.root = root.resolve()
        self.pages = sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.html"))
        self._parsed: dict[str, BeautifulSoup] = {}

    def page(self, name: str) -> BeautifulSoup:
        """A page, parsed."""
        if name not in self._parsed:
            self._parsed[name] = BeautifulSoup((self.root / name).read_bytes(), "html.parser")
        return self._parsed[name]
