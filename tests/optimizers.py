"""Optimizers on small parameters, and plain training to compare with."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

# A matrix, vectors of odd sizes and a tensor with four dimensions; sizes that do not fill a buffer's alignment.
SHAPES: tuple[tuple[int, ...], ...] = ((4, 3), (5,), (1,), (2, 3, 2, 2))

# Everything that torch has and that updates element by element, with options that add state or arithmetic.
ELEMENTWISE: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, dampening=0.2),
    "SGD with Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True, maximize=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "RMSprop centered": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1, t0=3),
}


def make_small(
    *, shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[torch.nn.Parameter]:
    """Parameters with gradients, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for shape in shapes:
        parameter = torch.nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype))
        parameter.grad = torch.randn(shape, generator=generator).to(device, dtype)
        made.append(parameter)
    return made


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def train(optimizer: Optimizer, step: Callable[[], object], n_steps: int = 8, first: int = 0) -> None:
    """Take steps with new gradients, in place, and a new learning rate each time."""
    for index in range(first, first + n_steps):
        generator = torch.Generator().manual_seed(index)
        for parameter in parameters_of(optimizer):
            if parameter.grad is not None:
                parameter.grad.copy_(torch.randn(parameter.shape, generator=generator))
        step()
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0.9


def assert_same(optimizer: Optimizer, reference: Optimizer) -> None:
    """Parameters, state and param groups agree, in the form that `state_dict` gives them."""
    for parameter, expected in zip(parameters_of(optimizer), parameters_of(reference), strict=True):
        torch.testing.assert_close(parameter.detach(), expected.detach(), rtol=1e-3, atol=5e-5)
    got, wanted = optimizer.state_dict(), reference.state_dict()
    assert got["param_groups"] == wanted["param_groups"]
    assert got["state"].keys() == wanted["state"].keys()
    for index, state in wanted["state"].items():
        kept = {name: value for name, value in state.items() if value is not None}
        assert got["state"][index].keys() == kept.keys()
        for name, value in kept.items():
            mine = got["state"][index][name]
            torch.testing.assert_close(mine, value, rtol=1e-3, atol=5e-5, msg=f"{name} is {mine}, not {value}")
