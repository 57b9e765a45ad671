"""Whether the recipes do the same: parameters, state and learning rates, after steps in which everything changes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch.utils.benchmark import timer as synchronized_time

from optimbench._steps import describe_failure
from optimbench.errors import InvalidArgumentError
from optimbench.recipes._copies import copy_optimizer, parameters_of
from optimbench.recipes._possible import possible_recipes
from optimbench.recipes._step import Step, build_step
from optimbench.recipes._worker import Backend

# Fewer do not show a learning rate that is kept from an early step, or a graph that is replayed with old values: the
# first replay comes after three warm-up calls.
_LEAST_STEPS = 5
# The share of the way a tensor went that two ways of computing may differ by. Rounding differs by 1e-6 of a step in
# float32; a learning rate that is one step old differs by a tenth of one.
_RELATIVE_TOLERANCE = 1e-3
# And multiples of the rounding error of the largest value, since every step rounds once to the stored type.
_ROUNDINGS = 4
# Muon orthogonalises in bfloat16, whose rounding differs by some thousandths.
_RELATIVE_TOLERANCE_MUON = 2e-2
# Each step's learning rate is this multiple of the one before.
_DECAY = 0.9


class Sameness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a recipe does the same as the plain for-loop.

    Attributes:
        recipe: Its name.
        is_same: The verdict.
        n_steps: After how many steps it was compared.
        difference: The largest difference of an entry of a parameter or of the state, over its tolerance; at most 1
            is the same. None where nothing could be compared.
        where: Which tensor that was, for example "exp_avg of parameter 3", or what else differs; "" where it failed.
        reason: What differs, in one sentence, or "".
        first_calls_s: Seconds of the first five calls, compiling and capturing included, with Inductor's caches as they
            were; None where they failed.

    Example:
        >>> import optimbench as ob
        >>> verdict = ob.Sameness(
        ...     recipe="compiled", is_same=False, n_steps=10, difference=3.0, where="parameter 0", reason="it differs"
        ... )
        >>> verdict.is_same or verdict.reason
        'it differs'
    """

    recipe: str
    is_same: bool
    n_steps: int
    difference: float | None
    where: str
    reason: str
    first_calls_s: float | None = None


def check_sameness(
    optimizer: torch.optim.Optimizer,
    recipes: Sequence[str] | None = None,
    *,
    n_steps: int = 10,
    seed: int = 0,
    backend: Backend = "inductor",
    elementwise: bool | None = None,
) -> tuple[Sameness, ...]:
    """Compare recipes with the eager for-loop from the same start, on copies of the optimizer.

    Learning rate and gradients change in every step; counting recompiles does not show a compiled step that keeps
    using an old learning rate, the parameters do. Compared are the parameters, every entry of the state, and the
    learning rate that each step used.

    The device holds three sets of parameters, gradients and state while this runs: the given one, the reference and
    a copy.

    Args:
        optimizer: As it will be used, with gradients. It is not changed.
        recipes: Which; None: all that are possible.
        n_steps: At least 5.
        seed: Of the gradients.
        backend: As in `build_step`.
        elementwise: As in `why_not`.

    Returns:
        One verdict for each recipe, in the order given. A tensor is the same where no entry differs by more than a
        thousandth of the largest way an entry of it went, plus four rounding errors of its largest entry.

    Raises:
        InvalidArgumentError: Fewer than 5 steps.
        RecipeError: Not even the for-loop can be used.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> weight.grad = torch.ones(4)
        >>> (verdict,) = ob.check_sameness(torch.optim.Adam([weight]), ["foreach"])
        >>> verdict.is_same, verdict.n_steps
        (True, 10)
    """
    if n_steps < _LEAST_STEPS:
        raise InvalidArgumentError(f"n_steps is {n_steps} (expected at least {_LEAST_STEPS})")
    if recipes is None:
        recipes = possible_recipes(optimizer, elementwise=elementwise)
    tolerance = _RELATIVE_TOLERANCE_MUON if isinstance(optimizer, torch.optim.Muon) else _RELATIVE_TOLERANCE
    start = _tensors(optimizer)
    twin = copy_optimizer(optimizer)
    reference = _run(build_step(twin, "forloop"), n_steps, seed)
    verdicts = []
    for recipe in recipes:
        try:
            twin = copy_optimizer(optimizer)
            run = _run(build_step(twin, recipe, backend=backend, elementwise=elementwise), n_steps, seed)
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is a verdict on the recipe.
            verdicts.append(_verdict(recipe, n_steps, None, "", f"it failed: {describe_failure(error)}"))
        else:
            verdicts.append(_compare(recipe, start, reference, run, tolerance))
    return tuple(verdicts)


class _Run(NamedTuple):
    """What some steps gave: all tensors by name, and for each step the learning rates used and the seconds taken."""

    tensors: dict[str, torch.Tensor]
    rates: list[tuple[float, ...]]
    times_s: list[float]


def _run(step: Step, n_steps: int, seed: int) -> _Run:
    twin = step.optimizer
    rates, times_s = [], []
    # Taken before the first step: torch's foreach SGD with Nesterov momentum changes the gradients themselves.
    sizes = [_typical_size(parameter.grad) for parameter in parameters_of(twin)]
    for index in range(n_steps):
        _change_gradients(twin, sizes, seed + index)
        start = synchronized_time()
        step()
        times_s.append(synchronized_time() - start)
        rates.append(step.learning_rates)
        _change_learning_rates(twin)
    step.close()
    return _Run(_tensors(twin), rates, times_s)


def _typical_size(gradient: torch.Tensor | None) -> float | None:
    if gradient is None or gradient.layout != torch.strided or not gradient.numel():
        return None
    return max(float(gradient.abs().mean()), 1e-6)


def _change_gradients(optimizer: torch.optim.Optimizer, sizes: Sequence[float | None], seed: int) -> None:
    # In place: some recipes need gradients where they were.
    for index, (parameter, size) in enumerate(zip(parameters_of(optimizer), sizes, strict=True)):
        if size is not None and parameter.grad is not None:
            generator = torch.Generator(parameter.device).manual_seed(seed + 1_000_003 * index)
            # Drawn apart: in place, the numbers would go in the order of memory, which flat buffers change.
            drawn = torch.empty(parameter.shape, dtype=parameter.grad.dtype, device=parameter.device)
            parameter.grad.copy_(drawn.normal_(generator=generator).mul_(size))


def _change_learning_rates(optimizer: torch.optim.Optimizer) -> None:
    for lr in {id(group["lr"]): group["lr"] for group in optimizer.param_groups}.values():
        if isinstance(lr, torch.Tensor):
            lr.mul_(_DECAY)
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], torch.Tensor):
            group["lr"] *= _DECAY


def _tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """All parameters and all numbers of the state, by name; nothing is copied."""
    optimizer.state_dict()  # Its hook brings the state of an optimizer with an open step up to date.
    found = {}
    for index, parameter in enumerate(parameters_of(optimizer)):
        found[f"parameter {index}"] = parameter.detach()
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, (torch.Tensor, int, float)):
                found[f"{name} of parameter {index}"] = torch.as_tensor(value).detach()
    return found


def _compare(recipe: str, start: dict[str, torch.Tensor], expected: _Run, got: _Run, tolerance: float) -> Sameness:
    n_steps, first_calls_s = len(expected.rates), sum(got.times_s[:_LEAST_STEPS])
    for number, (wanted, used) in enumerate(zip(expected.rates, got.rates, strict=True), 1):
        if not all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(wanted, used, strict=True)):
            return _verdict(recipe, n_steps, None, "lr", f"step {number} used the learning rates {used}, not {wanted}")
    if expected.tensors.keys() != got.tensors.keys():
        names = ", ".join(sorted(expected.tensors.keys() ^ got.tensors.keys()))
        return _verdict(recipe, n_steps, None, "state", f"only one of them has {names}")
    worst, where = 0.0, ""
    for name, tensor in expected.tensors.items():
        share = _share_of_tolerance(start.get(name), tensor, got.tensors[name], tolerance)
        if share >= worst:
            worst, where = share, name
    reason = f"{where} differs by {worst:.3g} times the tolerance" if worst > 1 else ""
    return _verdict(recipe, n_steps, worst, where, reason, first_calls_s=first_calls_s)


def _share_of_tolerance(
    start: torch.Tensor | None, wanted: torch.Tensor, got: torch.Tensor, relative_tolerance: float
) -> float:
    if wanted.numel() == 0:
        return 0.0
    got = got.to(wanted.device)
    if not wanted.is_floating_point() and not wanted.is_complex():
        return 0.0 if torch.equal(wanted, got) else math.inf
    went = wanted - start.to(wanted.device) if start is not None else wanted
    tolerance = relative_tolerance * _largest(went) + _ROUNDINGS * torch.finfo(wanted.dtype).eps * _largest(wanted)
    difference = _largest(got - wanted)
    if not math.isfinite(difference):
        return math.inf
    if tolerance == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / tolerance


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max())


def _verdict(
    recipe: str, n_steps: int, difference: float | None, where: str, reason: str, *, first_calls_s: float | None = None
) -> Sameness:
    return Sameness(
        recipe=recipe,
        is_same=not reason,
        n_steps=n_steps,
        difference=difference,
        where=where,
        reason=reason,
        first_calls_s=first_calls_s,
    )
