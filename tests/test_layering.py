"""Modules import in one direction, and importing the package costs next to nothing."""

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import optimbench

PACKAGE = Path(optimbench.__file__).parent
# From left to right: a module imports from its own group and from those before it.
GROUPS = [
    {"errors", "_format", "_program", "_stats"},
    {"results", "_gpu_state", "environment"},
    {"comparison", "isolation", "launching"},
    {"recordings", "figures"},
]
# Beside them: these measure. They import each other and all but the last group.
MEASURING = {
    "devices",
    "distributed",
    "limits",
    "operations",
    "recipes",
    "recommendation",
    "recompiles",
    "timing",
    "workloads",
}
# The command line serves all of them.
COMMAND_LINE = "__main__"
# Inside the function that needs it: describing the machine asks torch which device it has.
INSIDE_FUNCTIONS = {
    ("environment", "torch"),
    ("environment", "triton"),
    ("environment", "devices"),
    # Comparing recordings from the command line needs no torch.
    ("__main__", "torch"),
}
PACKAGE_ITSELF = "__init__"
IMPORT_LIMIT_S = 0.15


def module_name(path: Path) -> str:
    """The module's name below the package; a subpackage is one module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted({module_name(path) for path in PACKAGE.rglob("*.py")} - {PACKAGE_ITSELF})
# Private modules are part of what measures, unless a group names them.
MEASURING |= {module for module in MODULES if module.startswith("_")}.difference({COMMAND_LINE}, *GROUPS)


def imported(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """What a statement imports: a module of ours below the package, or another top-level package."""
    if isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, "relative imports hide the direction"
        names = [f"{statement.module}.{alias.name}" for alias in statement.names]
    else:
        names = [alias.name for alias in statement.names]
    for name in names:
        top, *rest = name.split(".")
        if top != PACKAGE.name:
            yield top
        else:
            yield rest[0] if rest and rest[0] in MODULES else PACKAGE_ITSELF


def imports_of(module: str) -> set[tuple[str, bool]]:
    """Everything that a module imports, and whether it does so when it is imported itself."""
    found: set[tuple[str, bool]] = set()
    for path in PACKAGE.rglob("*.py"):
        if module_name(path) != module:
            continue
        tree = ast.parse(path.read_text())
        inside = {
            id(node) for outer in ast.walk(tree) if isinstance(outer, ast.FunctionDef) for node in ast.walk(outer)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {(name, id(node) not in inside) for name in imported(node)}
    return found - {(module, True)}


def allowed(module: str) -> set[str]:
    """The modules of ours that a module may import."""
    if module == COMMAND_LINE:
        return set(MODULES) - {COMMAND_LINE}
    if module in MEASURING:
        return MEASURING.union(*GROUPS[:3])
    for number, group in enumerate(GROUPS):
        if module in group:
            return set().union(*GROUPS[: number + 1])
    raise AssertionError(f"tests/test_layering.py does not say where the module {module!r} belongs")


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_to_the_left(module: str) -> None:
    for name, at_import in imports_of(module):
        if name in MODULES and (at_import or (module, name) not in INSIDE_FUNCTIONS):
            assert name in allowed(module), f"{module} imports {name}"
        if name == "torch" and module not in MEASURING:
            assert (module, name) in INSIDE_FUNCTIONS, f"{module} imports torch"
            assert not at_import, f"{module} imports torch as soon as it is imported"
        if name == "matplotlib":
            assert module == "figures", f"{module} imports matplotlib"


def test_imports_have_no_cycle() -> None:
    graph = {module: {name for name, at_import in imports_of(module) if at_import} for module in MODULES}
    while free := {module for module, needed in graph.items() if not needed & graph.keys()}:
        graph = {module: needed for module, needed in graph.items() if module not in free}
    assert graph == {}, f"these import each other: {graph}"


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_the_package_is_quick_and_imports_nothing_heavy() -> None:
    code = """
        import time, sys
        start = time.perf_counter()
        import optimbench
        print(time.perf_counter() - start)
        print(*sorted({"torch", "matplotlib", "numpy", "msgspec"} & sys.modules.keys()))
    """
    outputs = [run(code).splitlines() for _ in range(3)]
    assert min(float(seconds) for seconds, _ in outputs) < IMPORT_LIMIT_S
    assert {heavy for _, heavy in outputs} == {""}


def test_results_can_be_used_where_torch_is_not_installed() -> None:
    left = sorted(set().union(*GROUPS) & set(MODULES))
    code = f"""
        import importlib, sys
        sys.modules["torch"] = None  # Makes `import torch` fail.
        for name in {left!r}:
            importlib.import_module("optimbench." + name)
        print(sys.modules["optimbench"].Table(name="t", columns=("a",), cells=((1,),)))
    """
    assert "a" in run(code)


def test_every_public_name_can_be_imported() -> None:
    for name in optimbench.__all__:
        assert getattr(optimbench, name).__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'measures'"):
        _ = optimbench.measures
