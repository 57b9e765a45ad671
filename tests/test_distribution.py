"""What is in the sdist and in the wheel."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import optimbench

REPOSITORY = Path(__file__).parents[1]
SOURCES = sorted(p.relative_to(REPOSITORY / "src").as_posix() for p in (REPOSITORY / "src").rglob("*.py"))
# Nothing that a build or an editor leaves behind, and nothing that is generated.
UNWANTED = ("__pycache__", ".pyc", "docs/tutorials", "docs/api/generated", "build/", ".nox", ".git/")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both: the one that the build session has made, or else made here."""
    if "OPTIMBENCH_DIST" in os.environ:
        return Path(os.environ["OPTIMBENCH_DIST"])
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


def test_there_is_one_of_each_and_both_carry_the_version(distributions: Path) -> None:
    version = optimbench.__version__
    assert sorted(p.name for p in distributions.iterdir() if not p.name.startswith(".")) == [
        f"optimbench-{version}-py3-none-any.whl",
        f"optimbench-{version}.tar.gz",
    ]


def test_wheel_holds_the_package_and_nothing_else(distributions: Path) -> None:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        metadata_name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(wheel.read(metadata_name).decode())
        licences = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert sorted(names) == sorted([*SOURCES, "optimbench/py.typed"])
    assert licences
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["Requires-Python"] == ">=3.11"
    assert any(need.startswith("torch>=2.11") for need in metadata.get_all("Requires-Dist", []))
    assert not any(
        need.startswith("matplotlib") and "extra" not in need for need in metadata.get_all("Requires-Dist", [])
    )


def test_sdist_can_build_test_and_document_itself(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as sdist:
        names = [name.split("/", 1)[1] for name in sdist.getnames()]
    wanted = ["pyproject.toml", "noxfile.py", "constraints.txt", "README.md", "CHANGELOG.md", "LICENSE", "conf/conf.py"]
    wanted += ["docs/index.rst", "conf/inventories/torch.txt", "tests/site/test_tiny_site.py"]
    assert [name for name in [*wanted, *(f"src/{source}" for source in SOURCES)] if name not in names] == []
    assert any(name.startswith("gallery/start/plot_01") for name in names)
    assert [name for name in names if any(part in name for part in UNWANTED)] == []
