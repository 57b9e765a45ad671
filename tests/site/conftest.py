"""Small sites, built once for all tests."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from site_builder import DATA, Site, build_site


@pytest.fixture(scope="session")
def tiny_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Both pages of the tiny gallery, built where nobody has said what the site's address is."""
    return build_site(tmp_path_factory.mktemp("tiny"), DATA)


@pytest.fixture(scope="session")
def published_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The same with a known address."""
    return build_site(tmp_path_factory.mktemp("published"), DATA, OPTIMBENCH_SITE_URL="https://example.org/docs")


@pytest.fixture
def build_script(tmp_path: Path) -> Callable[[str], Site]:
    """A function that builds a gallery of the first page of the tiny gallery and the given last block of a second."""

    def build(code: str) -> Site:
        gallery = tmp_path / "scripts"
        shutil.copytree(DATA, gallery)
        (gallery / "start" / "plot_02_starts_afresh.py").write_text(f'"""\nSecond\n======\n\nA page.\n"""\n\n{code}\n')
        return build_site(tmp_path / "site", gallery)

    return build
