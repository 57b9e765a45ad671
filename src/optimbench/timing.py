"""Measure steps so that two of them can be compared: in interleaved rounds, wall, host and kernel time apart.

The wall time is taken with `torch.utils.benchmark.Timer`, which waits for the device at both ends of a block of
calls, so that a block takes about as long as the longer of launching and running it. That is why the host's time to
launch and the kernels' own time are measured too, each by its own means.
"""

import contextlib
import math
from collections.abc import Callable, Mapping

import torch

from optimbench._runner import Clock, Runner, Step, take_rounds
from optimbench._steps import describe_failure
from optimbench.comparison import compare_measurements
from optimbench.errors import InvalidArgumentError
from optimbench.results import Comparison, Measurement, NotMeasured

__all__ = ["compare", "measure"]


def measure(
    step: Step,
    *,
    name: str,
    min_run_time_s: float = 2.0,
    device: torch.device | str | None = None,
    num_threads: int | None = None,
    cold_cache: bool = False,
    clock: Clock | None = None,
) -> Measurement:
    """Measure one step.

    The step is really taken, many times: parameters and optimizer state move on. Measure on a copy where that
    matters. Gradients are not changed.

    Args:
        step: Called without arguments; what it returns is ignored.
        name: What the result calls it.
        min_run_time_s: Seconds of blocks to collect; at least ten blocks are taken, however long they are.
        device: Where the step runs. By default the device of the optimizer that the step belongs to or closes
            over, and where there is none the one that `pick_device` picks.
        num_threads: CPU threads to compute with; by default as many as torch uses now.
        cold_cache: Write over the device's cache before every call. By default it is warm: a call finds what the one
            before left, as a step finds what the backward pass left. For parameters much larger than the cache, both
            are the same. Only the wall time is taken so, on a GPU without the host's part, since the launches queue up
            behind the writing; the host's and the kernels' times are of warm calls.
        clock: Seconds now, with the device's work done. For tests; by default the timer of
            `torch.utils.benchmark`.

    Returns:
        Wall time over blocks; host time, kernels and memory where the device is a GPU.

    Raises:
        InvalidArgumentError: The step cannot be called or only makes a coroutine or a generator, the name is empty, a
            number is out of range, the device is neither the CPU nor a CUDA device.
        DeviceError: There is no such CUDA device.
        NoGradientError: No parameter of the step's optimizer has a gradient.
        CompilerNotFoundError: The step needs a C++ compiler and there is none.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> weight.grad = torch.ones(4)
        >>> step = torch.optim.SGD([weight], lr=0.1).step
        >>> ob.measure(step, name="SGD", min_run_time_s=0.01).n_blocks >= 10
        True
    """
    runner = Runner(step, name, device, num_threads, clock, cold_cache=cold_cache)
    check_run_time(min_run_time_s)
    runner.attempt(runner.warm_up)
    take_rounds([runner], min_run_time_s, seed=0)
    if runner.failure is not None:
        raise runner.failure
    return runner.result()


def compare(
    steps: Mapping[str, Step],
    *,
    baseline: str,
    check: Callable[[str], str | None] | None = None,
    min_run_time_s: float = 2.0,
    seed: int = 0,
    device: torch.device | str | None = None,
    num_threads: int | None = None,
    cold_cache: bool = False,
    clock: Clock | None = None,
    turn: contextlib.AbstractContextManager[object] | None = None,
) -> Comparison:
    """Measure several steps in interleaved rounds and compare each with the baseline.

    Every round times one block of each step, in an order drawn anew, so that a machine which slows down slows all
    of them. The speed-up is the median over the rounds of the ratio within a round, and the verdict is read from
    its interval: two steps that cannot be told apart are called so. A step that raises on its first calls does not
    end the comparison; its row says why it has no time. Give each step an optimizer of its own: some settings are
    stored on the optimizer and change the other step too.

    Args:
        steps: Each step under its name; called without arguments.
        baseline: The name of the step that the others are compared with.
        check: Called with each name but the baseline's before anything is timed; returns None where the step does the
            same as the baseline, else what differs, and then no time is shown for it.
        min_run_time_s: Seconds of blocks to collect for each step; at least ten blocks each.
        seed: Of the order within the rounds.
        device: As in `measure`.
        num_threads: As in `measure`.
        cold_cache: As in `measure`.
        clock: As in `measure`.
        turn: Entered after the first calls and left after the last, so that processes which compile side by side can
            be timed one at a time.

    Returns:
        One measurement a step and its ratios to the baseline.

    Raises:
        InvalidArgumentError: There is no step, the baseline is not among them, `check` says neither None nor what
            differs, or as in `measure`.
        DeviceError: As in `measure`.
        NoGradientError: No parameter of a step's optimizer has a gradient.
        OptimBenchError: The baseline itself could not be measured.

    Example:
        >>> import optimbench as ob
        >>> steps = {"short": lambda: sum(range(99)), "long": lambda: sum(range(9999))}
        >>> comparison = ob.compare(steps, baseline="long", min_run_time_s=0.01)
        >>> comparison.speedup("short").wall.is_faster
        True
        >>> [row.name for row in comparison.rows]
        ['short', 'long']
    """
    if not isinstance(steps, Mapping) or not steps:  # type: ignore[redundant-expr]
        raise InvalidArgumentError(f"steps is {steps!r} (expected a mapping of names to callables)")
    if baseline not in steps:
        raise InvalidArgumentError(f"baseline {baseline!r} is not among the steps {list(steps)}")
    check_run_time(min_run_time_s)
    runners = [Runner(step, name, device, num_threads, clock, cold_cache=cold_cache) for name, step in steps.items()]
    not_measured = []
    for runner in runners:
        difference = check(runner.name) if check is not None and runner.name != baseline else None
        if difference is not None and not (isinstance(difference, str) and difference):  # type: ignore[redundant-expr]
            raise InvalidArgumentError(
                f"check said {difference!r} of {runner.name!r} (expected None if it does the same, else what differs)"
            )
        if difference is None:
            runner.attempt(runner.warm_up)
        else:
            not_measured.append(NotMeasured(name=runner.name, outcome="different result", reason=difference))
    refused = {step.name for step in not_measured}
    runners = [runner for runner in runners if runner.name not in refused]
    with turn or contextlib.nullcontext():
        take_rounds([runner for runner in runners if runner.failure is None], min_run_time_s, seed=seed)
    for runner in runners:
        if runner.failure is not None:
            if runner.name == baseline:
                raise runner.failure
            reason = describe_failure(runner.failure)
            not_measured.append(NotMeasured(name=runner.name, outcome="failed", reason=reason))
    return compare_measurements(
        [runner.result() for runner in runners if runner.failure is None],
        baseline=baseline,
        not_measured=not_measured,
        seed=seed,
    )


def check_run_time(min_run_time_s: float) -> None:
    """Refuse a time to measure for that is none.

    Raises:
        InvalidArgumentError: It is not a positive finite number.
    """
    if not (math.isfinite(min_run_time_s) and min_run_time_s > 0):
        raise InvalidArgumentError(f"min_run_time_s is {min_run_time_s} (expected a positive number of seconds)")
