"""Check the reST inside Python files, which sphinx-lint does not look into: text of tutorials, docstrings.

python conf/lint_prose.py gallery src
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from sphinx_gallery.py_source_parser import split_code_and_text_blocks
from sphinxlint import check_text
from sphinxlint.checkers import all_checkers
from sphinxlint.sphinxlint import CheckersOptions

# ruff checks the length of lines, and between single backticks a docstring names things, which the site links.
NOT_FOR_PYTHON = {"line-too-long"}
NOT_FOR_DOCSTRINGS = {*NOT_FOR_PYTHON, "default-role"}


def text_blocks(script: Path) -> Iterator[tuple[int, str]]:
    """The texts of a tutorial as sphinx-gallery cuts them out: first line, reST."""
    _, blocks = split_code_and_text_blocks(str(script))
    for block in blocks:
        if block.type == "text":
            yield block.lineno, block.content


def docstrings(module: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a module and of all that is in it: first line, text."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def faults(path: Path) -> list[str]:
    """What sphinx-lint says about the reST in a Python file, a line each."""
    is_tutorial = path.name.startswith("plot_")
    parts = text_blocks(path) if is_tutorial else docstrings(path)
    without = NOT_FOR_PYTHON if is_tutorial else NOT_FOR_DOCSTRINGS
    checkers = [check for name, check in all_checkers.items() if name not in without]
    return [
        f"{path}:{line + error.line_no - 1}: {error.msg} ({error.checker_name})"
        for line, text in parts
        # The name's ending tells sphinx-lint what it reads.
        for error in check_text("text.rst", text.rstrip() + "\n", checkers, CheckersOptions())
    ]


def main(folders: list[str]) -> int:
    """Print all faults of all Python files; the number of faults decides the exit status."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    if not paths:
        raise SystemExit(f"no Python file in {folders}")
    found = [fault for path in paths for fault in faults(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
