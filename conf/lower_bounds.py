"""Write constraints with the oldest version of everything that pyproject.toml names. `nox -s minimums` installs them.

What pyproject.toml does not name keeps its version of constraints.txt. torch does too, unless it is asked for: its
oldest version is a CUDA build of several gigabytes where no index of CPU builds is given to pip.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LOWER_BOUND = re.compile(r">=\s*([0-9][0-9A-Za-z.]*)")


def requirements(project: dict[str, Any]) -> Iterator[str]:
    """All that a pyproject.toml asks for but linters, whose age says nothing of the package."""
    yield from project["build-system"]["requires"]
    yield from project["project"]["dependencies"]
    for extra in project["project"].get("optional-dependencies", {}).values():
        yield from extra
    for name, group in project["dependency-groups"].items():
        if name != "lint":
            yield from (need for need in group if isinstance(need, str))


def lower_bounds(project: dict[str, Any]) -> dict[str, str]:
    """The oldest version by name; where two places name one, the newer, which both admit.

    Raises:
        ValueError: A requirement has no lower bound.
    """
    bounds: dict[str, str] = {}
    for requirement in requirements(project):
        name, bound = _name(requirement), _LOWER_BOUND.search(requirement)
        if bound is None:
            raise ValueError(f"{requirement!r} has no lower bound (expected {name}>=VERSION)")
        bounds[name] = max(bounds.get(name, "0"), bound[1], key=_key)
    return bounds


def constraints(project: dict[str, Any], pinned: str, *, has_torch: bool) -> str:
    """The text of a constraints file: the lower bounds, and the pins of all that has none."""
    bounds = lower_bounds(project)
    if not has_torch:
        del bounds["torch"]
    kept = [line for line in pinned.splitlines() if line[:1].isalnum() and _name(line) not in bounds]
    return "\n".join([*(f"{name}=={version}" for name, version in sorted(bounds.items())), *kept, ""])


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found is not None  # Neither file holds a requirement without a name.
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _key(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main(words: Sequence[str] | None = None) -> int:
    """Write the file, and give the exit status."""
    parser = argparse.ArgumentParser(prog="nox -s minimums --", description=__doc__)
    parser.add_argument("target", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--torch", action="store_true", help="install the oldest torch, too")
    options = parser.parse_args(words)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    options.target.parent.mkdir(exist_ok=True)
    options.target.write_text(constraints(project, (ROOT / "constraints.txt").read_text(), has_torch=options.torch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
