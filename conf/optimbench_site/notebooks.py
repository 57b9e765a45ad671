"""Notebooks that hold what the build printed and drew: sphinx-gallery writes them without.

After sphinx-gallery has run, the outputs are taken from the page it wrote for each script, so that a notebook shows
what its page shows. A page whose script was not executed has none, and its notebook stays as it is.
"""

import base64
import json
import re
import shutil
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

from optimbench import Recording
from optimbench_site.stored import results_of_script

# Where the notebooks lie in the site, at addresses that hold from build to build.
FOLDER = "notebooks"
_BLOCK = re.compile(r"^\.\. GENERATED FROM PYTHON SOURCE LINES [\d-]+\n", re.MULTILINE)
_CODE = re.compile(r"\.\. code-block:: Python\b")
_PRINTED = re.compile(r"\.\. rst-class:: sphx-glr-script-out\b")
_RESULT = re.compile(r"\.\. recorded-result:: (\w+)")
_HTML = re.compile(r"\.\. raw:: html\b")
_IMAGE = re.compile(r"\s*\.\. image-sg:: /(\S+)")
# A role in prose: ":func:`~torch.compile`", ":doc:`a text <page>`".
_ROLE = re.compile(r"(?<!`):(?P<role>(?:\w+:)?\w+):`(?P<text>[^`<]+?)(?:\s*<[^`>]+>)?`")
_IN_PROSE = {"doc", "ref", "term"}


def fill_notebooks(app: Sphinx) -> None:
    """Fill every notebook of the gallery, then put them into the archives that hold them."""
    gallery = Path(app.srcdir) / app.config.sphinx_gallery_conf["gallery_dirs"]
    for path in sorted(gallery.rglob("*.ipynb")):
        docname = path.relative_to(app.srcdir).with_suffix("").as_posix()
        notebook = json.loads(path.read_text(encoding="utf-8"))
        fill(notebook, path, Path(app.srcdir), results_of_script(app.srcdir, docname))
        # What did not change keeps its time, so that Sphinx copies no download again.
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
    for archive in gallery.rglob("*.zip"):
        _renew(archive)


def fill(notebook: dict[str, Any], path: Path, srcdir: Path, results: Recording | None) -> None:
    """Give each cell of code the outputs of its block, and prose without roles.

    Args:
        notebook: As sphinx-gallery wrote it; changed in place.
        path: Its file, beside which the page and the script lie.
        srcdir: The source folder, from which the addresses of images start.
        results: What the script gave.

    Raises:
        ExtensionError: The page and the notebook do not have the same blocks of code.
    """
    _, blocks = split_code_and_text_blocks(str(path.with_suffix(".py")))
    parts = _BLOCK.split(path.with_suffix(".rst").read_text(encoding="utf-8"))
    code = [part for part, block in zip(parts, blocks, strict=False) if block.type == "code"]
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # The first cell installs the package; it has no block in the script.
    cells = [cell for cell in cells if "%pip install" not in "".join(cell["source"])]
    if len(parts) != len(blocks) or len(code) != len(cells):
        raise ExtensionError(
            f"{path.name}: {len(cells)} cells, {len(code)} blocks of code in {len(parts)} of the page"
            f" (expected as many as the script has, {len(blocks)} in all)"
        )
    for count, (cell, part) in enumerate(zip(cells, code, strict=True), 1):
        cell["outputs"] = list(_outputs(part, path.stem, srcdir, results))
        cell["execution_count"] = count if cell["outputs"] else None
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [_ROLE.sub(_without_role, "".join(cell["source"]))]


def _outputs(part: str, script: str, srcdir: Path, results: Recording | None) -> Iterator[dict[str, Any]]:
    """The outputs of one block as a notebook has them: first what was printed."""
    shown: list[dict[str, Any]] = []
    lines = part.splitlines()
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        end = at
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
            end += 1
        body = textwrap.dedent("\n".join(lines[at:end])).strip("\n")
        if _CODE.match(line):
            at = end
        elif _PRINTED.match(line):
            text = textwrap.dedent(body.partition("\n")[2]).strip("\n")
            # Where this copy of the repository lies is no reader's business.
            text = text.replace(f"{srcdir.parent}/", "")
            yield {"output_type": "stream", "name": "stdout", "text": f"{text}\n"}
            at = end
        elif _HTML.match(line):
            shown.append(_display({"text/html": body, "text/plain": "(a table)"}))
            at = end
        elif found := _RESULT.match(line):
            result = results.result(script, found[1]) if results else None
            if result is not None:
                shown.append(_display({"text/html": result._repr_html_(), "text/plain": str(result)}))
        elif found := _IMAGE.match(line):
            data = base64.b64encode((srcdir / found[1]).read_bytes()).decode()
            shown.append(_display({"image/png": data, "text/plain": "(a figure)"}))
    yield from shown


def _display(data: dict[str, str]) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _without_role(found: re.Match[str]) -> str:
    text = " ".join(found["text"].split())
    if found["role"] in _IN_PROSE:
        return text
    return f"`{text.rpartition('.')[2] if text.startswith('~') else text}`"


def _renew(archive: Path) -> None:
    """Write an archive again with the notebooks as they are now, unless it holds them already."""
    with zipfile.ZipFile(archive) as old:
        before = {entry: old.read(entry) for entry in old.infolist()}
    now = {
        entry: (archive.parent / entry.filename).read_bytes() if entry.filename.endswith(".ipynb") else data
        for entry, data in before.items()
    }
    if list(now.values()) == list(before.values()):
        return  # What did not change keeps its time here, too: a page is read again when its archive is newer.
    new = archive.with_suffix(".zip.new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as renewed:
        for entry, data in now.items():
            renewed.writestr(entry, data, zipfile.ZIP_DEFLATED)
    new.replace(archive)


def publish(app: Sphinx, exception: Exception | None) -> None:
    """Copy the notebooks to their lasting addresses."""
    if exception is not None or app.builder.format != "html":
        return
    gallery = Path(app.srcdir) / app.config.sphinx_gallery_conf["gallery_dirs"]
    shutil.rmtree(app.outdir / FOLDER, ignore_errors=True)
    for path in gallery.rglob("*.ipynb"):
        target = app.outdir / FOLDER / path.relative_to(gallery)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register; the priority is above that of sphinx-gallery, which writes the notebooks."""
    app.connect("builder-inited", fill_notebooks, priority=800)
    app.connect("build-finished", publish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
