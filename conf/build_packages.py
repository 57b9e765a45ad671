"""Build the sdist and the wheel, test what is in them, and install the wheel. `nox -s build` calls it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run build, twine and the tests of what they made; the first status that is not zero ends it."""
    target = ROOT / "build" / "dist"
    shutil.rmtree(target, ignore_errors=True)
    # The wheel is built from the sdist, so that what is missing there is missed here.
    status = _run("build", "--no-isolation", "--outdir", str(target))
    status = status or _run("twine", "check", "--strict", *map(str, target.glob("optimbench-*")))
    return status or _run("pytest", "tests/test_distribution.py", OPTIMBENCH_DIST=str(target))


def _run(module: str, *words: str, **environment: str) -> int:
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
