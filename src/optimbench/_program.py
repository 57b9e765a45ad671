"""A program from a function: its source and that of what it uses, so that other processes can run it.

Functions of a notebook or of a page lie in no module that another process could import.
"""

import dis
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType

from optimbench.errors import InvalidArgumentError

_PLAIN = (bool, int, float, str, bytes, type(None))


def program_of(main: Callable[[], object]) -> str:
    """A program that defines a function as `main`, with all that it uses from around it.

    Functions of the same module are taken by their source, modules and what comes from modules are imported, numbers
    and texts are written down. What only a decorator or the default of an argument uses is not found.

    Raises:
        InvalidArgumentError: It is no function without arguments, it is a closure, its source is not known, or it uses
            something else.
    """
    if not isinstance(main, FunctionType):
        raise InvalidArgumentError(f"main is {main!r} (expected a function)")
    sources: dict[str, str] = {}
    _collect(main, main.__name__, main, sources)
    # Annotations would otherwise be looked up.
    return "\n".join(["from __future__ import annotations", *sources.values(), f"main = {main.__name__}"])


def _collect(value: object, name: str, main: FunctionType, sources: dict[str, str]) -> None:
    if name in sources:
        return
    if isinstance(value, ModuleType):
        sources[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, _PLAIN):
        sources[name] = f"{name} = {value!r}"
    elif isinstance(value, FunctionType) and value.__module__ == main.__module__:
        if value.__closure__:
            raise InvalidArgumentError(f"{name} uses variables of the function around it (expected none)")
        try:
            sources[name] = textwrap.dedent(inspect.getsource(value))
        except OSError as error:
            raise InvalidArgumentError(f"the source of {name} is not known") from error
        for used in dict.fromkeys(_names(value.__code__)):
            if used in value.__globals__:
                _collect(value.__globals__[used], used, main, sources)
    else:
        sources[name] = _import(value, name)


def _import(value: object, name: str) -> str:
    module, known_as = (getattr(value, attribute, None) for attribute in ("__module__", "__name__"))
    found = None
    if isinstance(module, str) and isinstance(known_as, str) and module != "__main__":
        found = getattr(importlib.import_module(module), known_as, None)
    if found is None or found is not value:
        raise InvalidArgumentError(
            f"{name} is a {type(value).__name__} (expected a module, something that a module has, a function, a number"
            " or a text)"
        )
    return f"from {module} import {known_as} as {name}"


def _names(code: CodeType) -> Iterator[str]:
    """The names that code looks up outside of itself."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
