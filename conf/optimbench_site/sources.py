"""Which parts of the package a tutorial depends on, found by reading, not by running.

A tutorial depends on the modules that define the public names it uses, and on all that those import. Docstrings and
comments of the package change no number, so they do not count.
"""

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import optimbench

PACKAGE = Path(optimbench.__file__).parent
# Run as commands by these modules, which import nothing of them.
_RUN_BY = {"isolation": {"__main__"}}
# Beside the package, a tutorial's output depends on these.
_VERSIONS = ("torch", "numpy", "matplotlib")
_QUICK = "OPTIMBENCH_QUICK"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules_of(script: Path, package: Path = PACKAGE) -> set[str]:
    """The modules that a tutorial may run code of, named from the package on: "timing", "results._base"."""
    found: set[str] = set()
    open_ = set(_used(ast.parse(script.read_text(encoding="utf-8"), str(script)), "", package))
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ |= _used_by(name, package) | _RUN_BY.get(name, set())
    return found


def fingerprint(script: Path, package: Path = PACKAGE) -> str:
    """SHA-256 of the code of all that a tutorial depends on, but of nothing that it says itself."""
    digest = hashlib.sha256()
    versions = [f"{name} {importlib.metadata.version(name)}" for name in _VERSIONS]
    for part in (platform.python_version(), *versions, os.environ.get(_QUICK, "")):
        digest.update(f"{part}\n".encode())
    for name in sorted(modules_of(script, package)):
        digest.update(f"{name}\n{_code(_path(name, package))}\n".encode())
    return digest.hexdigest()


@functools.cache
def _used_by(name: str, package: Path) -> set[str]:
    path = _path(name, package)
    inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
    # A package is imported before the modules in it.
    parents = {name.rpartition(".")[0]} - {""}
    return parents | set(_used(_parsed(path), inside, package))


def _used(tree: ast.Module, inside: str, package: Path) -> Iterator[str]:
    """The package's modules that are imported somewhere in a file, also those imported by using a public name."""
    aliases = set()
    nodes = list(_nodes(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, _, name = alias.name.partition(".")
                if top == "optimbench":
                    aliases.add(alias.asname or top)
                    yield from [name] if name else []
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # Each dot beyond the first is one package further out.
                parents = inside.split(".")[: 1 - node.level or None] if inside else []
                base = ".".join(filter(None, ["optimbench", *parents, base]))
            if base.partition(".")[0] == "optimbench":
                yield from _imported(base.partition(".")[2], [alias.name for alias in node.names], package)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield from _imported("", [node.attr], package)


def _imported(base: str, names: list[str], package: Path) -> Iterator[str]:
    """The modules behind `from BASE import NAMES`."""
    if base:
        yield base
    for name in names:
        inner = f"{base}.{name}" if base else name
        if _exists(inner, package):
            yield inner
        elif not base and name in optimbench._MODULE_OF:
            yield optimbench._MODULE_OF[name]


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child)


def _path(name: str, package: Path) -> Path:
    path = package.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _exists(name: str, package: Path) -> bool:
    return _path(name, package).is_file()


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def _code(path: Path) -> str:
    """What a module does: its syntax tree without docstrings. Comments and layout are not in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
