"""What can be told of a step before it is called: its optimizers, their device and gradients."""

import functools
import inspect
from collections.abc import Callable, Iterator

import torch

from optimbench.devices import missing_compiler, pick_device
from optimbench.errors import InvalidArgumentError, NoGradientError

# How many wrappers a step is looked through: partials, compiled functions, closures over functions.
_DEPTH = 4


def optimizers_of(step: Callable[[], object]) -> list[torch.optim.Optimizer]:
    """The optimizers that a step belongs to, carries as `optimizer`, or refers to by name; without duplicates."""
    found = {id(optimizer): optimizer for optimizer in _search(step, _DEPTH)}
    return list(found.values())


def device_of(step: Callable[[], object]) -> torch.device:
    """The device of the parameters that the step updates; where it has none, the one `pick_device` picks."""
    parameters = [parameter for optimizer in optimizers_of(step) for parameter in _parameters(optimizer)]
    on_gpu = [parameter.device for parameter in parameters if parameter.device.type == "cuda"]
    if on_gpu:
        return on_gpu[0]
    return parameters[0].device if parameters else pick_device().device


def check_step(step: Callable[[], object], name: str) -> None:
    """Refuse what would do nothing when it is called, so that its time would mean nothing.

    Raises:
        InvalidArgumentError: It cannot be called, or a call only makes a coroutine or a generator.
        NoGradientError: Every parameter's gradient is None, so the step would do nothing.
    """
    if not callable(step):
        raise InvalidArgumentError(f"step {name!r} is of type {type(step).__name__} (expected a callable)")
    for is_lazy in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        if is_lazy(step):
            raise InvalidArgumentError(f"step {name!r} is a generator or async: calling it runs nothing of it")
    for optimizer in optimizers_of(step):
        if all(parameter.grad is None for parameter in _parameters(optimizer)):
            kind = type(optimizer).__name__
            raise NoGradientError(
                f"step {name!r}: no parameter of its {kind} has a gradient, so a step does nothing;"
                " call backward() before measuring"
            )


def is_finite(step: Callable[[], object]) -> bool:
    """Whether every parameter that the step updates still holds finite numbers."""
    return all(
        bool(torch.isfinite(parameter).all())
        for optimizer in optimizers_of(step)
        for parameter in _parameters(optimizer)
    )


def describe_failure(error: Exception) -> str:
    """The class, the first line and the notes of an error; one sentence where the compiler is missing."""
    missing = missing_compiler(error)
    if missing is not None:
        return str(missing)
    # What a compiler raises wraps the cause, whose own first line says more.
    error = getattr(error, "inner_exception", None) or error
    lines = str(error).strip().splitlines()
    return "; ".join([": ".join([type(error).__name__, *lines[:1]]), *getattr(error, "__notes__", ())])


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _search(thing: object, depth: int) -> Iterator[torch.optim.Optimizer]:
    if isinstance(thing, torch.optim.Optimizer):
        yield thing
        return
    if depth == 0:
        return
    if isinstance(thing, functools.partial):
        for part in (thing.func, *thing.args, *thing.keywords.values()):
            yield from _search(part, depth - 1)
    elif inspect.ismethod(thing):
        yield from _search(thing.__self__, depth - 1)
    elif inspect.isfunction(thing):
        function = inspect.unwrap(thing, stop=inspect.ismethod)
        if inspect.ismethod(function):  # torch.compile(optimizer.step)
            yield from _search(function, depth - 1)
            return
        names = inspect.getclosurevars(function)
        for value in (*names.nonlocals.values(), *names.globals.values()):
            if isinstance(value, torch.optim.Optimizer) or inspect.isfunction(value):
                yield from _search(value, depth - 1)
    else:
        # A step object, such as those that build_step makes.
        optimizer = getattr(thing, "optimizer", None)
        if isinstance(optimizer, torch.optim.Optimizer):
            yield optimizer
