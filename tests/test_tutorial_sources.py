"""What a tutorial depends on, found on a small package and on the real one."""

from pathlib import Path

import pytest

from optimbench_site import sources

PACKAGE = {
    "__init__.py": '"""The face."""\n',
    "devices.py": "from optimbench.errors import DeviceError\n",
    "errors.py": "class DeviceError(Exception): pass\n",
    "limits.py": "from optimbench import _stats\n\n\ndef f():\n    import optimbench.results\n",
    "_stats.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from optimbench import timing\n",
    "timing.py": "from optimbench import measure, Table\n",
    "results/__init__.py": "from optimbench.results._table import Table\n",
    "results/_table.py": "from . import _base\nfrom ..errors import DeviceError\n",
    "results/_base.py": "",
    "isolation.py": "",
    "__main__.py": "import optimbench.devices\n",
}
RESULTS = {"results", "results._table", "results._base", "errors"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in PACKAGE.items():
        path = tmp_path / "optimbench" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "optimbench"


def script(folder: Path, text: str) -> Path:
    path = folder / "plot_01_script.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import torch\n", set()),
        ("import optimbench\n", set()),
        ("import optimbench as ob\nob.pick_device()\n", {"devices", "errors"}),
        ("import optimbench\noptimbench.DeviceError\n", {"errors"}),
        ("from optimbench import pick_device\n", {"devices", "errors"}),
        ("from optimbench.devices import anything\n", {"devices", "errors"}),
        # Imports in functions count, those for a type checker do not.
        (
            "import optimbench as ob\nob.floor_s\n",
            {"limits", "_stats", *RESULTS},
        ),
        # Run as a command.
        ("import optimbench as ob\nob.run_isolated\n", {"isolation", "__main__", "devices", "errors"}),
        # Another object's attribute is no name of ours.
        ("import optimbench as ob\nx.measure\n", set()),
    ],
)
def test_modules_of_a_script(package: Path, tmp_path: Path, text: str, modules: set[str]) -> None:
    assert sources.modules_of(script(tmp_path, text), package) == modules


def test_modules_that_import_each_other(package: Path, tmp_path: Path) -> None:
    found = sources.modules_of(script(tmp_path, "import optimbench as ob\nob.measure\n"), package)
    assert found == {"timing", *RESULTS}


def test_fingerprint_follows_code_alone(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprint() -> str:
        # Files do not change while a site is built.
        for cached in (sources._used_by, sources._parsed, sources._code):
            cached.cache_clear()
        return sources.fingerprint(path, package)

    path = script(tmp_path, "import optimbench as ob\nob.pick_device()\n")
    first = fingerprint()
    path.write_text('"""Prose."""\nimport optimbench as ob\nob.pick_device()\n')
    (package / "limits.py").write_text("x = 1\n")
    (package / "errors.py").write_text('class DeviceError(Exception):  # Why.\n    """Words."""\n    pass\n')
    assert fingerprint() == first
    monkeypatch.setenv("OPTIMBENCH_QUICK", "1")
    quick = fingerprint()
    monkeypatch.delenv("OPTIMBENCH_QUICK")
    (package / "errors.py").write_text("class DeviceError(RuntimeError): pass\n")
    assert len({first, quick, fingerprint()}) == 3


def test_tutorials_do_not_depend_on_all() -> None:
    gallery = Path(__file__).parents[1] / "gallery"
    found = {path.stem: sources.modules_of(path) for path in gallery.rglob("plot_*.py")}
    assert found
    assert all(modules for modules in found.values())
    assert "recompiles" in found["plot_11_every_scheduler"]
    assert "timing" not in found["plot_11_every_scheduler"]
    assert {"timing", "results", "results._measurement"} <= found["plot_03_timing_a_step_properly"]
    assert "recompiles" not in found["plot_03_timing_a_step_properly"]
