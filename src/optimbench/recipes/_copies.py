"""Optimizers made from a given one: an independent copy, or one of the same class that does its work."""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from optimbench.errors import InvalidArgumentError
from optimbench.recipes._names import Recipe

# One number for each parameter tensor. Most optimizers keep these on the CPU, unless the update is capturable or fused.
_HOST_SCALARS = ("step", "mu_product")
# And these on the parameter's device, always.
_DEVICE_SCALARS = ("eta", "mu")
# Settings that choose an implementation; a recipe decides them.
IMPLEMENTATION_SETTINGS = ("foreach", "fused", "capturable")
# What belongs to one optimizer object: its contents, its hooks, and what schedulers and steps attach to it.
_NOT_COPIED = ("state", "param_groups", "defaults", "step", "_optimbench_step")


def copy_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An independent copy: own parameters with own gradients, own state, the same hyperparameters.

    `copy.deepcopy` would lose the gradients. Hooks and schedulers stay with the original. Give each step that is
    compared a copy of its own.

    Args:
        optimizer: It is not changed.

    Raises:
        InvalidArgumentError: It is not an optimizer.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> weight.grad = torch.ones(2)
        >>> twin = ob.copy_optimizer(torch.optim.SGD([weight], lr=0.5))
        >>> twin.step()
        >>> weight.data, twin.param_groups[0]["params"][0].data
        (tensor([1., 1.]), tensor([0.5000, 0.5000]))
    """
    require_optimizer(optimizer)
    # The state of an optimizer that a step works on is brought up to date by the hook of state_dict.
    optimizer.state_dict()
    memo: dict[int, Any] = {}
    for parameter in parameters_of(optimizer):
        twin = parameter.detach().clone()
        twin = torch.nn.Parameter(twin, requires_grad=parameter.requires_grad)
        if parameter.grad is not None:
            twin.grad = parameter.grad.detach().clone()
        memo[id(parameter)] = twin
    content = copy.deepcopy(optimizer.__getstate__(), memo)
    return _unpickled(optimizer, content, {k: copy.deepcopy(v, memo) for k, v in _attributes(optimizer).items()})


def require_optimizer(optimizer: object) -> None:
    """Refuse what is not an optimizer, such as a model.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(f"optimizer is a {type(optimizer).__name__} (expected a torch.optim.Optimizer)")


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All parameters, group after group."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def make_worker(
    optimizer: torch.optim.Optimizer, recipe: Recipe, parameters: Sequence[Sequence[torch.Tensor]]
) -> torch.optim.Optimizer:
    """An optimizer of the same class and hyperparameters over other tensors, set up for a recipe and without state.

    It is made the way unpickling makes one, so that it works for every class, whatever its constructor takes.

    Args:
        optimizer: The one whose hyperparameters are taken; it is not changed.
        recipe: What to set foreach, fused and capturable for.
        parameters: The tensors to update, one sequence for each of the optimizer's groups.
    """
    groups = []
    for group, tensors in zip(optimizer.param_groups, parameters, strict=True):
        settings = _settings(recipe, tensors)
        kept = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        kept.update({key: value for key, value in settings.items() if key in group})
        groups.append({**kept, "params": list(tensors)})
    content = {"defaults": dict(optimizer.defaults), "state": defaultdict(dict), "param_groups": groups}
    worker = _unpickled(optimizer, content, _attributes(optimizer))
    # The warning that capturable=True is slow outside a graph does not concern the first calls, before the capture.
    worker._warned_capturable_if_run_uncaptured = True
    return worker


def adopt_scalar(name: str, value: Any, group: Mapping[str, Any], tensor: torch.Tensor) -> Any:
    """A copy of a scalar of the state, where an optimizer with the settings of `group` keeps it."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    if name not in _HOST_SCALARS:
        return value.detach().clone()
    # ASGD, known by its lambd, keeps its count with the parameter always.
    if group.get("capturable") or group.get("fused") or "lambd" in group:
        # The fused kernels read float32, whatever the default type is.
        return value.detach().to(tensor.device, torch.float32, copy=True)
    return value.detach().to("cpu", copy=True)


def is_scalar(name: str, value: Any, tensor: torch.Tensor) -> bool:
    """Whether an entry of the state is one number for the whole tensor, not one for each element."""
    if not isinstance(value, torch.Tensor) or name in _HOST_SCALARS or name in _DEVICE_SCALARS:
        return True
    return value.dim() == 0 and tensor.dim() > 0


def adopted_state(state: Mapping[str, Any], group: Mapping[str, Any], tensor: torch.Tensor) -> dict[str, Any]:
    """The state of one parameter as an optimizer with the settings of `group` keeps it.

    Tensors with a number for each element are shared, scalars are copied.
    """
    return {
        name: adopt_scalar(name, value, group, tensor) if is_scalar(name, value, tensor) else value
        for name, value in state.items()
        if value is not None
    }


def _settings(recipe: Recipe, tensors: Sequence[torch.Tensor]) -> dict[str, bool | None]:
    on_cuda = bool(tensors) and all(tensor.is_cuda for tensor in tensors)
    if recipe.implementation == "compiled":
        # None lets torch choose as it does for an eager step; capturable keeps the step count on the device. A single
        # tensor needs no foreach, under which the update waits for a kernel that only counts steps; without it that
        # kernel comes last, and with dependent launch its start is hidden.
        return {"foreach": False if len(tensors) == 1 else None, "fused": None, "capturable": on_cuda}
    implementation = recipe.implementation
    return {
        "foreach": implementation == "foreach",
        "fused": implementation == "fused",
        "capturable": recipe.in_graph,
    }


def _attributes(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(optimizer).items()
        if name not in _NOT_COPIED and not name.startswith("_optimizer_")
    }


def _unpickled(
    optimizer: torch.optim.Optimizer, content: dict[str, Any], attributes: dict[str, Any]
) -> torch.optim.Optimizer:
    made: torch.optim.Optimizer = type(optimizer).__new__(type(optimizer))
    vars(made).update(attributes)
    made.__setstate__(content)
    return made
