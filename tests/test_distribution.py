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
    wanted += [
        ".github/workflows/ci.yml",
        "docs/recordings/nvidia-h200.json",
        "docs/recordings/history/nvidia-h200.json",
    ]
    assert [name for name in [*wanted, *(f"src/{source}" for source in SOURCES)] if name not in names] == []
    assert any(name.startswith("gallery/start/plot_01") for name in names)
    assert [name for name in names if any(part in name for part in UNWANTED)] == []


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, and nothing else, is installed."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(next(distributions.glob("*.whl")))], check=True, capture_output=True, timeout=120)
    return folder


def run_installed(installed: Path, folder: Path, *words: str) -> str:
    """What Python prints in an empty folder, with the installed package in front of all others."""
    environ = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_wheel_is_the_package_with_all_its_names(installed: Path, tmp_path: Path) -> None:
    code = "import optimbench; print(optimbench.__file__); [getattr(optimbench, name) for name in optimbench.__all__]"
    assert run_installed(installed, tmp_path, "-c", code).strip() == str(installed / "optimbench" / "__init__.py")
    assert (installed / "optimbench" / "py.typed").is_file()


def test_installed_wheel_measures_records_and_compares(installed: Path, tmp_path: Path) -> None:
    code = """
import torch, optimbench as ob
from optimbench.recordings import device_slug
weight = torch.nn.Parameter(torch.ones(8))
weight.grad = torch.ones(8)
measured = ob.measure(torch.optim.SGD([weight], lr=0.1).step, name="SGD", min_run_time_s=0.01)
machine = ob.collect_environment()
script = ob.RecordedScript(environment=machine, source_sha256="0" * 64)
recording = ob.Recording(device=device_slug(machine), scripts={"a": script}, results={"a": {"step": measured}})
ob.save_recording(recording, "a.json")
print(machine.commit)
"""
    # Installed, it lies in no checkout, so it has no commit.
    assert run_installed(installed, tmp_path, "-c", code).strip() == "None"
    said = run_installed(installed, tmp_path, "-m", "optimbench", "diff", "a.json", "a.json")
    assert said == "0 times slower, 1 times within noise.\n"
    assert '"type": "environment"' in run_installed(installed, tmp_path, "-m", "optimbench", "env", "--json")
