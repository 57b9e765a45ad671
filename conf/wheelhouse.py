"""Collect wheels for a machine without network, torch left out. `nox -s wheelhouse` calls it."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nox

ROOT = Path(__file__).parents[1]
# From the newest to the oldest glibc whose wheels the machine may run.
TAGS = [*(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17, 12, 5)), "manylinux2014_x86_64"]


def main(words: Sequence[str] | None = None) -> int:
    """Fill build/wheelhouse, and give pip's exit status."""
    parser = argparse.ArgumentParser(prog="nox -s wheelhouse --", description=__doc__)
    parser.add_argument("version", nargs="?", default="3.12", help="Python of that machine (default: %(default)s)")
    version = parser.parse_args(words).version
    target = ROOT / "build" / "wheelhouse"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    needed = [*project["project"]["dependencies"], *nox.project.dependency_groups(project, "docs", "test")]
    listed = target / "requirements.txt"
    listed.write_text("\n".join(need for need in needed if not need.startswith("torch")) + "\n")
    platforms = [word for tag in TAGS for word in ("--platform", tag)]
    options = ["--only-binary=:all:", "--python-version", version, *platforms, "-c", str(ROOT / "constraints.txt")]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(target), "-r", str(listed)]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        print(f"There: python -m pip install --no-index --find-links {target.name} -r {target.name}/requirements.txt")
    return status


if __name__ == "__main__":
    sys.exit(main())
