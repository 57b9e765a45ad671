"""Small sites, built once for all tests."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from site_builder import DATA, INDEX, REPOSITORY, Site, build_site


@pytest.fixture(scope="session")
def tiny_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Both pages of the tiny gallery, built where nobody has said what the site's address is."""
    return build_site(tmp_path_factory.mktemp("tiny"), DATA)


@pytest.fixture(scope="session")
def published_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The same with a known address, a known repository, and a recording for the home page's figure."""
    pages = {
        "index.rst": INDEX.replace(".. toctree::", ".. headline-figure:: nvidia-h200\n\n.. toctree::"),
        "recordings/nvidia-h200.json": (REPOSITORY / "docs" / "recordings" / "nvidia-h200.json").read_text(),
    }
    return build_site(
        tmp_path_factory.mktemp("published"),
        DATA,
        pages,
        OPTIMBENCH_SITE_URL="https://example.org/docs",
        OPTIMBENCH_REPOSITORY="someone/optimbench",
        OPTIMBENCH_NOTEBOOKS_BRANCH="gh-pages",
    )


@pytest.fixture
def build_script(tmp_path: Path) -> Callable[[str], Site]:
    """A function that builds a gallery of the first page of the tiny gallery and the given last block of a second."""

    def build(code: str) -> Site:
        gallery = tmp_path / "scripts"
        shutil.copytree(DATA, gallery)
        (gallery / "start" / "plot_02_starts_afresh.py").write_text(f'"""\nSecond\n======\n\nA page.\n"""\n\n{code}\n')
        return build_site(tmp_path / "site", gallery)

    return build
