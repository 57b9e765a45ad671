"""Notebooks show what their pages show."""

import base64
import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from site_builder import Site
from sphinx.errors import ExtensionError

from optimbench_site.notebooks import fill

FIRST, SECOND = "start/plot_01_leaves_state_behind", "start/plot_02_starts_afresh"


def notebook(site: Site, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((site.html / "notebooks" / f"{name}.ipynb").read_text())
    return loaded


def outputs(content: dict[str, Any], kind: str) -> list[str]:
    """All outputs of one kind: printed text, or data of a MIME type."""
    found = [output for cell in content["cells"] for output in cell.get("outputs", [])]
    if kind == "stdout":
        return ["".join(output["text"]) for output in found if output["output_type"] == "stream"]
    return ["".join(output["data"][kind]) for output in found if kind in output.get("data", {})]


def test_what_the_page_shows_is_in_the_notebook(tiny_site: Site) -> None:
    first = notebook(tiny_site, FIRST)
    page = tiny_site.page(f"tutorials/{FIRST}.html")
    # The page names the folder that it was built in; the notebook names the script alone.
    folder = f"{tiny_site.html.parent}/"
    printed = [block.get_text().rstrip("\n").replace(folder, "") for block in page.select(".sphx-glr-script-out pre")]
    assert [text.rstrip("\n") for text in outputs(first, "stdout")] == printed != []
    (table,) = outputs(first, "text/html")
    assert "Lengths &amp; &lt;names&gt;" in table
    (picture,) = outputs(notebook(tiny_site, SECOND), "image/png")
    drawn = next((tiny_site.html / "_images").glob("*plot_02*_001.png"))
    assert base64.b64decode(picture) == drawn.read_bytes()


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_notebooks_are_well_formed_and_hold_no_path_and_no_role(tiny_site: Site, name: str) -> None:
    content = notebook(tiny_site, name)
    nbformat.validate(content)
    text = json.dumps(content)
    assert str(tiny_site.html.parent) not in text
    assert ":func:`" not in text
    counts = [cell["execution_count"] for cell in content["cells"] if cell["cell_type"] == "code"]
    assert counts[0] is None, "the cell that installs was not executed by the build"
    assert any(counts)


def test_downloads_archives_and_lasting_addresses_hold_the_same(tiny_site: Site) -> None:
    lasting = {path.name: path.read_bytes() for path in (tiny_site.html / "notebooks").rglob("*.ipynb")}
    assert len(lasting) == 2
    downloads = list((tiny_site.html / "_downloads").rglob("*.ipynb"))
    archives = list((tiny_site.html / "_downloads").rglob("*.zip"))
    zipped = []
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            zipped += [(Path(n).name, archive.read(n)) for n in archive.namelist() if n.endswith(".ipynb")]
    found = [(path.name, path.read_bytes()) for path in downloads] + zipped
    # Each page's download, its archive, and the archive of all.
    assert len(found) == 6
    assert all(lasting[name] == content for name, content in found)


def test_a_notebook_that_does_not_match_its_page_fails(tiny_site: Site) -> None:
    srcdir = tiny_site.html.parent / "docs"
    path = srcdir / "tutorials" / f"{FIRST}.ipynb"
    content = json.loads(path.read_text())
    again = copy.deepcopy(content)
    fill(again, path, srcdir, None)
    assert outputs(again, "stdout") == outputs(content, "stdout")
    content["cells"].pop()
    with pytest.raises(ExtensionError, match=r"plot_01_leaves_state_behind\.ipynb: .* as many as the script has"):
        fill(content, path, srcdir, None)
