"""Try the possible recipes on copies of an optimizer, and say which to use."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from optimbench.errors import RecipeError
from optimbench.limits import bytes_per_step, cache_note, copy_bandwidth, floor_s
from optimbench.recipes import (
    RECIPES,
    build_step,
    check_sameness,
    copy_optimizer,
    learning_rate_problems,
    require_optimizer,
    required_arguments,
    why_not,
)
from optimbench.results import Comparison, FirstCalls, NotMeasured, Recommendation
from optimbench.timing import check_run_time, compare

__all__ = ["Progress", "recommend"]

# The optimizer's own step, as it was given.
_BASELINE = "yours"
# Of recipes that take about as long as the fastest, the one that asks least of the training loop is recommended.
_AS_FAST = 1.02
# A share of the floor that the noise of the copy bandwidth does not explain.
_BELOW_FLOOR = 0.9
# The calls whose time check_sameness gives.
_FIRST_CALLS = 5


class Progress(NamedTuple):
    """How far `recommend` is.

    Attributes:
        done: Finished parts.
        total: All parts.
        doing: What is done now, in words.

    Example:
        >>> import optimbench as ob
        >>> said = ob.Progress(done=1, total=4, doing="checking foreach")
        >>> f"{said.done} of {said.total}: {said.doing}"
        '1 of 4: checking foreach'
    """

    done: int
    total: int
    doing: str


def recommend(
    optimizer: torch.optim.Optimizer,
    *,
    gradients_move: bool = False,
    elementwise: bool | None = None,
    min_run_time_s: float = 2.0,
    progress: Callable[[Progress], object] | None = None,
) -> Recommendation:
    """Measure every recipe that is possible for an optimizer and gives the same result, and recommend one.

    All is done on copies: each recipe has its own parameters, gradients and state while they are measured in
    interleaved rounds. The optimizer's own step, as it is, is the baseline.

    Args:
        optimizer: As it is used, with gradients. It is not changed.
        gradients_move: Whether the training loop replaces gradients, as zero_grad(set_to_none=True) does. Recipes
            with a CUDA graph are left out then.
        elementwise: As in `why_not`.
        min_run_time_s: Seconds of blocks for each recipe, as in `compare`.
        progress: Called whenever a part begins, and at the end.

    Returns:
        The recommendation, with the comparison it rests on.

    Raises:
        NoGradientError: No parameter has a gradient.
        InvalidArgumentError: It is not an optimizer, or min_run_time_s is out of range.
        RecipeError: The optimizer's own step cannot be called without arguments.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(64))
        >>> weight.grad = torch.ones(64)
        >>> found = ob.recommend(torch.optim.Adafactor([weight]), min_run_time_s=0.05)
        >>> found.recipe in ("yours", "forloop", "foreach")
        True
        >>> print(next(step for step in found.not_used if step.name == "fused").reason)
        Adafactor has no fused implementation
    """
    require_optimizer(optimizer)
    check_run_time(min_run_time_s)
    if required := required_arguments(optimizer):
        raise RecipeError(f"{type(optimizer).__name__}.step needs {required}, so it cannot be measured as it is")
    tell = progress or (lambda _: None)
    not_used = []
    possible = []
    for recipe, parts in RECIPES.items():
        reason = why_not(optimizer, recipe, elementwise=elementwise)
        if reason is None and parts.in_graph and gradients_move:
            reason = "the training loop replaces gradients, and a CUDA graph reads them where they were"
        if reason is None:
            possible.append(recipe)
        else:
            not_used.append(NotMeasured(name=recipe, outcome="not possible", reason=reason))
    total = len(possible) + 2
    first_calls = []
    for index, recipe in enumerate(possible):
        tell(Progress(index, total, f"checking {recipe}"))
        (verdict,) = check_sameness(optimizer, [recipe], elementwise=elementwise)
        if not verdict.is_same:
            outcome = "different result" if verdict.where else "failed"
            not_used.append(NotMeasured(name=recipe, outcome=outcome, reason=verdict.reason))
        elif verdict.first_calls_s is not None:
            first_calls.append(FirstCalls(name=recipe, calls=_FIRST_CALLS, total_s=verdict.first_calls_s))
    tell(Progress(total - 2, total, "measuring the copy bandwidth"))
    least_s, remarks = _floor(optimizer)
    tell(Progress(total - 1, total, f"measuring {len(first_calls) + 1} steps"))
    comparison = _compare(optimizer, [first.name for first in first_calls], elementwise, min_run_time_s)
    tell(Progress(total, total, "done"))
    if least_s is not None and any(row.median_s < _BELOW_FLOOR * least_s for row in comparison.rows):
        remarks.append("a step took less than the floor: what it touches lies in caches, which the floor leaves out")
    chosen = _choose(comparison)
    if chosen in RECIPES:
        remarks.append(f"{chosen}: {RECIPES[chosen].summary}")
    return Recommendation(
        optimizer=type(optimizer).__name__,
        recipe=chosen,
        comparison=comparison,
        first_calls=tuple(first_calls),
        floor_s=least_s,
        not_used=tuple(not_used),
        remarks=(*learning_rate_problems(optimizer), *remarks),
    )


def _compare(
    optimizer: torch.optim.Optimizer, recipes: list[str], elementwise: bool | None, min_run_time_s: float
) -> Comparison:
    own = copy_optimizer(optimizer)
    steps: dict[str, Callable[[], object]] = {_BASELINE: own.step}
    for recipe in recipes:
        steps[recipe] = build_step(copy_optimizer(optimizer), recipe, elementwise=elementwise)
    return compare(steps, baseline=_BASELINE, min_run_time_s=min_run_time_s)


def _floor(optimizer: torch.optim.Optimizer) -> tuple[float | None, list[str]]:
    """The least seconds of a step, or None and why."""
    devices = {parameter.device for group in optimizer.param_groups for parameter in group["params"]}
    if len(devices) != 1:
        return None, ["the floor is not known for parameters on several devices"]
    try:
        note = cache_note(optimizer)
        if note is not None:
            return None, [note]
        if bytes_per_step(optimizer) == 0:
            return None, ["the parameters that have a gradient have no elements, so a step moves no bytes"]
        return floor_s(optimizer, copy_bandwidth(devices.pop())), []
    except RecipeError as error:
        return None, [str(error)]


def _choose(comparison: Comparison) -> str:
    """The first row, in the order of how much it asks of the loop, that is about as fast as the fastest.

    Rows whose difference from the baseline could be noise do not count.
    """
    faster = [row for row in comparison.rows if comparison.speedup(row.name).wall.is_faster]
    if not faster:
        return comparison.baseline
    fastest_s = min(row.median_s for row in faster)
    return next(row.name for row in faster if row.median_s <= _AS_FAST * fastest_s)
