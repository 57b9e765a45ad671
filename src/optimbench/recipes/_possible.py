"""Which recipes an optimizer can use where its parameters are, and why not the others."""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import torch

from optimbench.devices import LEAST_CAPABILITY
from optimbench.recipes._copies import adopt_scalar, is_scalar, make_worker, parameters_of, require_optimizer
from optimbench.recipes._flat import is_dense
from optimbench.recipes._names import RECIPES, Recipe, recipe_named

# Optimizers of torch that update every element from its own gradient and state alone, apart from scalars. Only the
# exact classes: a subclass may do anything.
_ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.Rprop,
    torch.optim.ASGD,
)
# Optimizers whose step torch.compile leaves eager without a word.
_NOT_COMPILED = {
    torch.optim.LBFGS: "torch disables torch.compile for LBFGS",
    torch.optim.SparseAdam: "torch disables torch.compile for SparseAdam",
    torch.optim.Adafactor: "Adafactor reads numbers back to the host in every step, so torch.compile leaves it eager",
}


def why_not(optimizer: torch.optim.Optimizer, recipe: str, *, elementwise: bool | None = None) -> str | None:
    """Why a recipe cannot be used with an optimizer, in one sentence; None where it can.

    Nothing is compiled to find out, so a compile can still fail. Whether torch implements foreach and fused for the
    data type and device is found by taking such a step on four numbers.

    Args:
        optimizer: As it will be used, with gradients if it has any.
        recipe: Its name: "forloop", "foreach", "fused", "fused_cudagraph", "compiled", "compiled_cudagraph",
            "flat_fused", "flat_compiled" or "flat_compiled_cudagraph".
        elementwise: Whether the optimizer updates each element from its own gradient and state alone, which flat
            buffers need. None: known for torch's own classes, taken as False for others.

    Raises:
        InvalidArgumentError: There is no such recipe, or it is not an optimizer.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(2, 2))
        >>> ob.why_not(torch.optim.Muon([weight]), "flat_compiled")
        'Muon does not update element by element, so its parameters cannot be merged into one tensor'
    """
    wanted = recipe_named(recipe)
    require_optimizer(optimizer)
    return (
        (_never_compiled(optimizer) if wanted.implementation == "compiled" else None)
        or _step_problem(optimizer)
        or _implementation_problem(optimizer, wanted)
        or (_flat_problem(optimizer, elementwise) if wanted.is_flat else None)
        or (_graph_problem(optimizer, wanted) if wanted.in_graph else None)
    )


def possible_recipes(optimizer: torch.optim.Optimizer, *, elementwise: bool | None = None) -> tuple[str, ...]:
    """The recipes that `why_not` has nothing against, in the order of `RECIPES`.

    Args:
        optimizer: As in `why_not`.
        elementwise: As in `why_not`.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(2, 2))  # On a GPU there are more.
        >>> ob.possible_recipes(torch.optim.Adafactor([weight]))
        ('forloop', 'foreach')
    """
    return tuple(recipe for recipe in RECIPES if why_not(optimizer, recipe, elementwise=elementwise) is None)


def learning_rate_problems(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """What is wrong with tensor learning rates before anything is measured, one sentence each with the remedy."""
    said = []
    groups = [group for group in optimizer.param_groups if isinstance(group.get("lr"), torch.Tensor)]
    if len({id(group["lr"]) for group in groups}) < len(groups):
        said.append(
            "one lr tensor is shared by several param groups, so they cannot have rates of their own, and a scheduler"
            " that changes it in place for each of them can apply its decay more than once: give every group a tensor"
            " of its own"
        )
    slow = [group for group in groups if "capturable" in group and not group["capturable"] and not group.get("fused")]
    if any(group.get("foreach") for group in slow):
        said.append(
            "lr is a tensor with foreach=True and capturable=False, which torch refuses: give lr as a float, or set"
            " capturable=True where the parameters are on CUDA"
        )
    elif slow:
        said.append(
            "lr is a tensor with capturable=False, so an eager step falls back to one parameter after the other: give"
            " lr as a float for an eager baseline"
        )
    return tuple(said)


def required_arguments(optimizer: torch.optim.Optimizer) -> str:
    """The arguments that the optimizer's step cannot do without, in words, or ""."""
    return " and ".join(
        name
        for name, argument in itertools.islice(inspect.signature(type(optimizer).step).parameters.items(), 1, None)
        if argument.default is argument.empty and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    )


def _step_problem(optimizer: torch.optim.Optimizer) -> str | None:
    kind = type(optimizer).__name__
    if required := required_arguments(optimizer):
        return f"{kind}.step needs {required}, and a recipe calls it without arguments"
    if any("lr" not in group for group in optimizer.param_groups):
        return f"a param group of this {kind} has no lr, which a recipe carries over"
    hooks = [getattr(optimizer, f"_optimizer_step_{when}_hooks", {}) for when in ("pre", "post")]
    if any(hooks) and not hasattr(optimizer, "_optimbench_step"):
        return f"this {kind} has step hooks, which a recipe would not call"
    if not parameters_of(optimizer):
        return f"this {kind} has no parameters"
    return None


def _implementation_problem(optimizer: torch.optim.Optimizer, recipe: Recipe) -> str | None:
    kind, implementation = type(optimizer).__name__, recipe.implementation
    if implementation == "forloop":
        return None
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return "differentiable=True keeps the history of every operation, which only the recipe 'forloop' does"
    if implementation == "compiled":
        return _compile_problem(optimizer)
    if any(implementation not in group for group in optimizer.param_groups):
        return f"{kind} has no {implementation} implementation"
    return _probe(optimizer, recipe)


def _never_compiled(optimizer: torch.optim.Optimizer) -> str | None:
    return next((reason for unable, reason in _NOT_COMPILED.items() if isinstance(optimizer, unable)), None)


def _compile_problem(optimizer: torch.optim.Optimizer) -> str | None:
    for device in {parameter.device for parameter in parameters_of(optimizer) if parameter.is_cuda}:
        if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
            return f"torch.compile needs compute capability {'.'.join(map(str, LEAST_CAPABILITY))} on CUDA"
    if any(p.dim() == 0 and p.dtype == torch.float64 and not p.is_cuda for p in parameters_of(optimizer)):
        # Seen in torch 2.13: the step count advances, the parameter and its moments do not.
        return "torch.compile takes a float64 tensor without dimensions for a number and would not update it"
    return _sparse_problem(optimizer)


def _probe(optimizer: torch.optim.Optimizer, recipe: Recipe) -> str | None:
    """What torch says against an implementation for the data types and devices of the parameters."""
    if recipe.implementation == "fused":
        problem = _sparse_problem(optimizer) or (None if recipe.is_flat else layout_problem(optimizer))
        if problem is not None:
            return problem
    tried = set()
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            where = (index, parameter.device, parameter.dtype)
            if where in tried:
                continue
            tried.add(where)
            # The worker takes one group for each of the optimizer's; the others stay empty.
            tensors: list[list[torch.Tensor]] = [[] for _ in optimizer.param_groups]
            tiny = torch.nn.Parameter(torch.zeros(2, 2, dtype=parameter.dtype, device=parameter.device))
            tiny.grad = torch.zeros_like(tiny)
            tensors[index].append(tiny)
            worker = make_worker(optimizer, recipe, tensors)
            if state := optimizer.state.get(parameter):
                # Some optimizers make their state when they are made, and cannot step without it.
                worker.state[tiny] = _tiny_state(state, worker.param_groups[index], parameter, tiny)
            for working in worker.param_groups:
                working["lr"] = 0.0
            try:
                worker.step()
            except (RuntimeError, ValueError, TypeError) as error:
                kind, said = type(optimizer).__name__, str(error).splitlines()[0]
                return f"{kind} has no {recipe.implementation} implementation for {parameter.dtype} here: {said}"
    return None


def layout_problem(optimizer: torch.optim.Optimizer) -> str | None:
    """Why torch's fused kernels would mix up elements: on a CPU they go through memory without regard to strides.

    Seen in torch 2.13, without an error: a parameter with gaps is updated in its gaps, in another tensor's memory.
    """
    for index, parameter in enumerate(parameters_of(optimizer)):
        if not is_dense(parameter):
            return f"parameter {index} has gaps or overlaps in memory, which torch's fused kernels disregard"
        for name, tensor in {"grad": parameter.grad, **optimizer.state.get(parameter, {})}.items():
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.layout == torch.strided
                and tensor.shape == parameter.shape
                and _order(tensor) != _order(parameter)
            ):
                return (
                    f"parameter {index} and its {name} lie in memory in different orders, which torch's fused kernels"
                    " disregard"
                )
    return None


def _order(tensor: torch.Tensor) -> list[int]:
    return [stride for stride, size in zip(tensor.stride(), tensor.size(), strict=True) if size > 1]


def _tiny_state(
    state: Mapping[str, Any], group: Mapping[str, Any], parameter: torch.Tensor, tiny: torch.Tensor
) -> dict[str, Any]:
    return {
        name: adopt_scalar(name, value, group, tiny)
        if is_scalar(name, value, parameter)
        else torch.zeros_like(tiny, dtype=value.dtype, requires_grad=False)
        for name, value in state.items()
        if value is not None
    }


def _flat_problem(optimizer: torch.optim.Optimizer, elementwise: bool | None) -> str | None:
    kind = type(optimizer).__name__
    if not (type(optimizer) in _ELEMENTWISE if elementwise is None else elementwise):
        if not type(optimizer).__module__.startswith("torch."):
            return f"it is not known whether {kind} updates element by element: if it does, pass elementwise=True"
        return f"{kind} does not update element by element, so its parameters cannot be merged into one tensor"
    return _sparse_problem(optimizer) or _memory_problem(optimizer)


def _memory_problem(optimizer: torch.optim.Optimizer) -> str | None:
    """Why parameters cannot be moved into a buffer."""
    spans = []
    for index, parameter in enumerate(parameters_of(optimizer)):
        if type(parameter) not in (torch.nn.Parameter, torch.Tensor):
            return f"parameter {index} is a {type(parameter).__name__}, whose memory a flat buffer cannot replace"
        if not is_dense(parameter):
            return f"parameter {index} has gaps or overlaps in memory"
        start = parameter.data_ptr()
        spans.append((parameter.device.index or 0, start, start + parameter.numel() * parameter.element_size(), index))
    for before, after in itertools.pairwise(sorted(span for span in spans if span[1] != span[2])):
        if before[0] == after[0] and before[2] > after[1]:
            return f"parameters {before[3]} and {after[3]} share memory"
    return None


def _graph_problem(optimizer: torch.optim.Optimizer, recipe: Recipe) -> str | None:
    devices = {parameter.device for parameter in parameters_of(optimizer)}
    if any(device.type != "cuda" for device in devices):
        names = ", ".join(sorted({device.type for device in devices if device.type != "cuda"}))
        return f"a CUDA graph needs all parameters on a CUDA device, and some are on {names}"
    if len(devices) > 1:
        return f"a CUDA graph runs on one device, and the parameters are on {len(devices)}"
    # SGD has no setting for it and needs none: it counts no steps.
    can_capture = type(optimizer) is torch.optim.SGD or all("capturable" in group for group in optimizer.param_groups)
    if not can_capture and recipe.implementation == "compiled":
        return f"{type(optimizer).__name__} has no setting capturable, so its step cannot be captured in a CUDA graph"
    return _sparse_problem(optimizer)


def _sparse_problem(optimizer: torch.optim.Optimizer) -> str | None:
    gradients = [parameter.grad for parameter in parameters_of(optimizer)]
    if any(gradient is not None and gradient.layout != torch.strided for gradient in gradients):
        return "a gradient is sparse, so its size differs from step to step"
    return None
