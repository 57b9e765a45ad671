"""The reference is complete: every public name and member is documented, listed and shown by an example that runs."""

import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import optimbench
from optimbench import figures
from optimbench.recipes import RECIPES
from optimbench.workloads import WORKLOADS

REFERENCE = Path(__file__).parents[1] / "docs" / "api" / "index.rst"
PUBLIC: dict[str, Any] = {name: getattr(optimbench, name) for name in optimbench.__all__}
PUBLIC |= {f"figures.{name}": getattr(figures, name) for name in figures.__all__}
ERRORS = {name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, Exception)}

# Which word says the unit, by the end of a name.
UNITS = {"_s": "second", "_bytes": "byte"}
# Inherited or made by Python, and no part of what a reader uses.
_NO_MEMBERS = {"caption"}
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example):$", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+):", re.MULTILINE)


def own_doc(value: Any) -> str:
    """The docstring of an object itself, without that of a base class."""
    doc = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return inspect.cleandoc(doc or "")


def section(doc: str, title: str) -> dict[str, str]:
    """The entries of one section of a docstring: names and what is said of them."""
    parts = _SECTION.split(doc)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = _ENTRY.split(texts.get(title, ""))
    return dict(zip(found[1::2], found[2::2], strict=True))


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself; their functions."""
    for name, member in vars(value).items() if isinstance(value, type) else ():
        if name.startswith("_") or name in _NO_MEMBERS:
            continue
        if isinstance(member, FunctionType | property | classmethod | staticmethod):
            yield name, member.fget if isinstance(member, property) else getattr(member, "__func__", member)


def fields(value: Any) -> dict[str, Any]:
    """The fields of a class and their types."""
    return {name: kind for name, kind in vars(value).get("__annotations__", {}).items() if name not in _NO_MEMBERS}


def callables() -> dict[str, Any]:
    """Every public function and method by its full name."""
    found = {name: value for name, value in PUBLIC.items() if not isinstance(value, type)}
    for owner, value in PUBLIC.items():
        found |= {f"{owner}.{name}": member for name, member in members(value)}
        if "__call__" in vars(value):
            found[f"{owner}.__call__"] = vars(value)["__call__"]
    return found


CALLABLES = callables()
CLASSES = {name: value for name, value in PUBLIC.items() if isinstance(value, type)}


def parameters(function: Any) -> list[str]:
    names = inspect.signature(function).parameters
    return [name for name in names if name not in ("self", "cls")]


def raised(function: Any) -> set[str]:
    """Our errors that a function's own code raises, not that of what it calls."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    raising = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [node.func if isinstance(node, ast.Call) else node for node in raising]
    return {node.id for node in calls if isinstance(node, ast.Name)} & ERRORS


def problems_of_units(entries: dict[str, str]) -> list[str]:
    return [
        f"{name} does not say {word!r}"
        for name, text in entries.items()
        for ending, word in UNITS.items()
        if name.endswith(ending) and word not in text.lower()
    ]


def problems_of_callable(function: Any) -> list[str]:
    """What is missing in the docstring of a function or method."""
    doc = own_doc(function)
    if not doc:
        return ["no docstring"]
    documented, errors = section(doc, "Args"), section(doc, "Raises")
    found = [f"parameter {name} is not in Args" for name in parameters(function) if name not in documented]
    found += [f"Args has {name}, which is no parameter" for name in documented if name not in parameters(function)]
    found += [f"{name} is not in Raises" for name in sorted(raised(function) - errors.keys())]
    found += [f"Raises has {name}, which is no error" for name in errors if name not in ERRORS]
    return found + problems_of_units(documented)


def problems_of_class(value: type) -> list[str]:
    """What is missing in the docstring of a class; its methods are looked at on their own."""
    doc = own_doc(value)
    if not doc:
        return ["no docstring"]
    said = section(doc, "Attributes")
    wanted = fields(value)
    found = [f"field {name} is not in Attributes" for name in wanted if name not in said]
    found += [f"Attributes has {name}, which is no field" for name in said if name not in wanted]
    if "__init__" in vars(value) and not wanted.keys() >= set(parameters(value)):
        known = {*said, *section(doc, "Args")}
        found += [f"parameter {name} is not described" for name in parameters(value) if name not in known]
    for name, kind in wanted.items():
        # One number each of something: how many there are has a name.
        if str(kind).startswith("tuple[float") and "(n_" not in said.get(name, ""):
            found.append(f"field {name} has no shape")
    return found + problems_of_units(said)


def listed(reference: str) -> list[str]:
    """The names in the lists of the reference."""
    blocks = re.findall(r"^\.\. autosummary::\n((?:   .*\n|\n)*)", reference, re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines() if re.match(r"   [\w.]+$", line)]


@pytest.mark.parametrize("name", CLASSES)
def test_class_is_documented(name: str) -> None:
    assert problems_of_class(CLASSES[name]) == []


@pytest.mark.parametrize("name", CALLABLES)
def test_function_is_documented(name: str) -> None:
    assert problems_of_callable(CALLABLES[name]) == []


@pytest.mark.parametrize("name", PUBLIC)
def test_name_has_an_example(name: str) -> None:
    assert doctest.DocTestParser().get_examples(own_doc(PUBLIC[name]))


@pytest.mark.parametrize("name", [*PUBLIC, *(name for name in CALLABLES if name not in PUBLIC)])
def test_examples_run_as_they_stand(name: str) -> None:
    """With nothing imported beforehand: they can be pasted."""
    value = PUBLIC.get(name, CALLABLES.get(name))
    test = doctest.DocTestParser().get_doctest(own_doc(value), {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert not any(doctest.SKIP in example.options for example in test.examples)


@pytest.mark.parametrize(
    ("function", "parameter", "names"),
    [("build_step", "recipe", RECIPES), ("why_not", "recipe", RECIPES), ("make_parameters", "workload", WORKLOADS)],
)
def test_names_that_can_be_given_are_listed(function: str, parameter: str, names: Iterable[str]) -> None:
    said = section(own_doc(PUBLIC[function]), "Args")[parameter]
    assert re.findall(r'"(\w+)"', said) == list(names)


def test_reference_lists_every_name_once() -> None:
    assert sorted(listed(REFERENCE.read_text())) == sorted(PUBLIC)
