"""Downloads that do not run are found."""

import json
import sys
from pathlib import Path

import pytest
from small_sites import make_site

from site_checks import Site, downloads
from site_checks.downloads import failing_notebooks, failing_scripts

PYTHON = Path(sys.executable)
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def site_of(folder: Path, *, script: str = "", cell: str = "") -> Site:
    """A site that offers one script and one notebook."""
    cells: list[dict[str, object]] = [
        {"cell_type": "code", "source": cell, "metadata": {}, "execution_count": None, "outputs": []}
    ]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    body = '<p><a class="download" href="d/one.py">py</a><a class="download" href="d/one.ipynb">ipynb</a></p>'
    files: dict[str, str | bytes] = {"d/one.py": script, "d/one.ipynb": notebook, "wheels/some.whl": b"a wheel"}
    return make_site(folder, body, files=files)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os; print(os.environ['OPTIMBENCH_QUICK'], os.listdir())", None),
        ("pass", "one.py printed nothing"),
        ("print('x'); raise SystemExit(3)", "one.py ended with status 3: x"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("print('Skipping: no GPU')", "one.py says 'Skipping'"),
        ("import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc(); print('x')", "one.py says 'Traceback"),
        ("import time; print('x', flush=True); time.sleep(60)", "one.py ran for more than 2 s"),
    ],
)
def test_script_that_does_not_run_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str | None
) -> None:
    monkeypatch.setattr(downloads, "TIME_LIMIT_S", 2 if "sleep" in script else 60)
    found = [fault.said for fault in failing_scripts(site_of(tmp_path, script=script), ["index.html"], PYTHON)]
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("import os; assert sorted(os.listdir()) == ['one.ipynb', 'some.whl'], os.listdir()", None),
        ("import urllib.request as r\nr.urlopen('https://example.org/docs/wheels/some.whl').close()", None),
        ("1 / 0", "ZeroDivisionError"),
        ("%pip install ./gone.whl", "one.ipynb says 'ERROR: '"),
        ("print('Skipping')", "one.ipynb says 'Skipping'"),
    ],
)
def test_notebook_that_does_not_run_is_found(tmp_path: Path, cell: str, said: str | None) -> None:
    site = site_of(tmp_path, cell=cell)
    found = [fault.said for fault in failing_notebooks(site, ["index.html"], PYTHON, CONSTRAINTS)]
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]
