"""Any of torch's optimizers on a workload, also those that need a closure or sparse gradients; for the command line."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from optimbench._kernels import detach_profiler, kernel_times
from optimbench.devices import pick_device
from optimbench.errors import InvalidArgumentError
from optimbench.recipes import build_step, check_sameness, copy_optimizer, why_not
from optimbench.results import Comparison, NotMeasured
from optimbench.timing import check_run_time, compare
from optimbench.workloads import make_parameters

# The optimizer's own step, as its settings have it.
_BASELINE = "eager"


def make_optimizer(
    name: str, workload: str, device: str | None, scale: float, n_tensors: int | None = None, /, **settings: Any
) -> torch.optim.Optimizer:
    """One of torch's optimizers on a workload; for SparseAdam the gradients are sparse.

    Args:
        name: Its class in `torch.optim`.
        workload: As in `make_parameters`.
        device: Where; None: the one that `pick_device` picks.
        scale: As in `make_parameters`.
        n_tensors: Only the first tensors of the workload; None: all.
        settings: Of the optimizer.

    Raises:
        InvalidArgumentError: The optimizer refuses its parameters or settings, or the device is none.
        DeviceError: There is no such CUDA device.
    """
    where = pick_device().device if device is None else device
    parameters = make_parameters(workload, device=where, scale=scale)[:n_tensors]
    if name == "SparseAdam":
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.to_sparse(1)
    make: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, name)
    try:
        return make(parameters, **settings)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} cannot be made: {error}") from error


def own_step(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """The optimizer's step, without arguments.

    LBFGS gets a closure whose loss stays as it is: it then ends its search after one update.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        return functools.partial(optimizer.step, lambda: 0.0)
    return optimizer.step


def compare_recipes(
    optimizer: torch.optim.Optimizer,
    recipes: Sequence[str],
    *,
    has_check: bool,
    min_run_time_s: float,
    turn: contextlib.AbstractContextManager[object] | None,
) -> Comparison:
    """Measure recipes on copies of an optimizer, against its own step; what cannot be used has a row without a time.

    Args:
        optimizer: With gradients; it is not changed.
        recipes: Keys of `RECIPES`.
        has_check: Whether a recipe is timed only if `check_sameness` finds it the same.
        min_run_time_s: As in `compare`.
        turn: As in `compare`.

    Raises:
        InvalidArgumentError: min_run_time_s is out of range.
    """
    check_run_time(min_run_time_s)  # Before minutes of compiling.
    problems = {recipe: why_not(optimizer, recipe) for recipe in recipes}
    possible = [recipe for recipe, problem in problems.items() if problem is None]
    verdicts = check_sameness(optimizer, possible) if has_check and possible else ()
    # One that failed, so that nothing could be compared, fails again when it is called, and its row says so.
    different = {verdict.recipe: verdict.reason for verdict in verdicts if not verdict.is_same and verdict.where}
    steps = {_BASELINE: own_step(copy_optimizer(optimizer))}
    for recipe in possible:
        steps[recipe] = build_step(copy_optimizer(optimizer), recipe)
    if turn is not None and any(p.is_cuda for group in optimizer.param_groups for p in group["params"]):
        # Loading the profiler takes a while and disturbs nobody before the turn comes.
        kernel_times(lambda: None, 1)
        detach_profiler()
    found = compare(steps, baseline=_BASELINE, check=different.get, min_run_time_s=min_run_time_s, turn=turn)
    not_possible = [
        NotMeasured(name=recipe, outcome="not possible", reason=problem)
        for recipe, problem in problems.items()
        if problem is not None
    ]
    return msgspec.structs.replace(found, not_measured=(*found.not_measured, *not_possible))
