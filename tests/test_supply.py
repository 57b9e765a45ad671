"""Which versions are installed: oldest ones that can be had, all of them pinned, none with a known vulnerability."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import audit
import lower_bounds

REPOSITORY = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PINNED = (REPOSITORY / "constraints.txt").read_text()


def test_everything_that_is_asked_for_has_a_lower_bound_below_its_pin() -> None:
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, _pins())}
    groups = [need for group in PROJECT["dependency-groups"].values() for need in group if isinstance(need, str)]
    for need in [*lower_bounds.requirements(PROJECT), *groups]:
        asked = Requirement(need)
        assert any(bound.operator == ">=" for bound in asked.specifier), need
        pin = pins[canonicalize_name(asked.name)]
        (version,) = [bound.version for bound in pin.specifier]
        assert asked.specifier.contains(version), f"{need}, but {pin}"


def test_pins_are_sorted_and_exact() -> None:
    names = [line.split("==")[0] for line in _pins()]
    assert names == sorted(set(names))
    assert all(line.count("==") == 1 for line in _pins())


def _pins() -> list[str]:
    return [line for line in PINNED.splitlines() if not line.startswith("#")]


EXAMPLE: dict[str, Any] = {
    "build-system": {"requires": ["hatchling>=1.27"]},
    "project": {
        "dependencies": ["torch>=2.11", "NumPy>=1.26"],
        "optional-dependencies": {"figures": ["matplotlib>=3.9"]},
    },
    "dependency-groups": {
        "docs": ["matplotlib>=3.10,<4", "sphinx_gallery>=0.22.1", {"include-group": "test"}],
        "lint": ["ruff>=0.12"],
    },
}


def test_minimums_are_the_lower_bounds_and_else_the_pins() -> None:
    pinned = "# Why.\nmatplotlib==3.11.2\nnumpy==2.4.6\npillow==13.0.0\nruff==0.17.6\ntorch==2.13.0\n"
    lines = lower_bounds.constraints(EXAMPLE, pinned, has_torch=False).splitlines()
    assert lines == [
        "hatchling==1.27",
        # Asked for in two places: the newer bound is the one that both admit.
        "matplotlib==3.10",
        "numpy==1.26",
        "sphinx-gallery==0.22.1",
        "pillow==13.0.0",
        "ruff==0.17.6",
        "torch==2.13.0",
    ]
    assert "torch==2.11" in lower_bounds.constraints(EXAMPLE, pinned, has_torch=True).splitlines()


def test_a_requirement_without_a_lower_bound_is_refused() -> None:
    unbounded = EXAMPLE | {"build-system": {"requires": ["hatchling"]}}
    with pytest.raises(ValueError, match="'hatchling' has no lower bound"):
        lower_bounds.lower_bounds(unbounded)


# Stand for pip-audit, which asks a database on another computer.
OUTCOMES = {
    "nothing known": ("print('No known vulnerabilities found')", 0),
    "one known": ("import sys; print('torch 2.13.0 CVE-2026-1'); sys.exit(1)", 1),
    "not reached": ("import sys; sys.exit('requests.exceptions.ConnectionError: no route')", 2),
    "left out": ("import sys; sys.exit('ERROR: x: Dependency not found and could not be audited: x')", 2),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_audit_that_did_not_happen_does_not_pass(outcome: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, status = OUTCOMES[outcome]
    assert audit.main(["constraints.txt"], (sys.executable, "-c", code)) == status
    said = capfd.readouterr()
    assert ("not audited: the database of vulnerabilities cannot be reached" in said.err) == (status == 2)
    assert ("CVE" in said.out) == (status == 1)


def test_the_audit_looks_at_every_pin(capfd: pytest.CaptureFixture[str]) -> None:
    audit.main(["a.txt", "b.txt"], (sys.executable, "-c", "import sys; print(sys.argv[1:])"))
    assert "'--strict', '--disable-pip', '--no-deps', '-r', 'a.txt', '-r', 'b.txt'" in capfd.readouterr().out
