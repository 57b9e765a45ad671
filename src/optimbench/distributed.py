"""Measure steps in every process of a `torch.distributed` group at once: the slowest rank's time is the step's."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from optimbench import _stats
from optimbench._runner import Runner, Step, take_rounds
from optimbench._steps import describe_failure, device_of, optimizers_of
from optimbench.comparison import compare_measurements
from optimbench.errors import InvalidArgumentError, RankError
from optimbench.results import Comparison, Measurement, NotMeasured
from optimbench.timing import check_run_time

__all__ = ["compare_ranks"]


class _RankedStep:
    """A step that every rank takes, with a clock at which they wait for each other.

    All ranks must do the same from block to block, since a step may talk to the others. So an exception is kept until
    the clock is next asked, which raises it on all ranks at the same place.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step = step
        self._device = device
        self._failure: Exception | None = None
        # What is looked up on a step to learn about its parameters.
        self.__self__ = getattr(step, "__self__", None)
        self.optimizer = next(iter(optimizers_of(step)), None)

    def __call__(self) -> None:
        if self._failure is None:
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - a step may raise anything, for example when memory runs out.
                self._failure = error

    def clock(self) -> float:
        """Rank 0's seconds, the same on all ranks, once all have come here with their device's work done.

        Raises:
            RankError: The step has failed on a rank since it was made.
        """
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        has_failed = torch.tensor([self._failure is not None], dtype=torch.int32, device=self._device)
        dist.all_reduce(has_failed, op=dist.ReduceOp.MAX)
        if has_failed.item():
            said = _from_all(None if self._failure is None else describe_failure(self._failure))
            rank = next(rank for rank, failure in enumerate(said) if failure is not None)
            raise RankError(f"rank {rank}: {said[rank]}") from self._failure
        now_s = torch.tensor([time.perf_counter()], dtype=torch.float64, device=self._device)
        dist.broadcast(now_s, src=0)
        return float(now_s.item())


def compare_ranks(
    steps: Mapping[str, Step],
    *,
    baseline: str,
    min_run_time_s: float = 2.0,
    seed: int = 0,
    num_threads: int | None = None,
) -> Comparison:
    """Measure several steps as `compare` does, in all processes of the default group at once.

    Every rank calls this with the same steps, in the same order. Before and after each block all ranks wait for each
    other, so a block takes as long as it takes the slowest of them, plus one small all-reduce and one broadcast. Host
    time, kernel time and memory are the largest of any rank. A step that raises on one rank has no time on any.

    Args:
        steps: Each step under its name; called without arguments. It may use collectives.
        baseline: The name of the step that the others are compared with.
        min_run_time_s: Seconds of blocks to collect for each step; at least ten blocks each.
        seed: Of the order within the rounds.
        num_threads: CPU threads to compute with; by default as many as torch uses now.

    Returns:
        One measurement a step and its ratios to the baseline; the same on all ranks.

    Raises:
        InvalidArgumentError: The baseline is not among the steps, a step cannot be called, a number is out of range.
        NoGradientError: No parameter of a step's optimizer has a gradient.
        RankError: There is no process group, or the baseline failed on a rank.

    Example:
        >>> import torch.distributed as dist
        >>> import optimbench as ob
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun sets more.
        >>> steps = {"short": lambda: sum(range(99)), "long": lambda: sum(range(9999))}
        >>> ob.compare_ranks(steps, baseline="long", min_run_time_s=0.01).fastest()
        ('short',)
        >>> dist.destroy_process_group()
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RankError("there is no process group: call torch.distributed.init_process_group first, on every rank")
    if baseline not in steps:
        raise InvalidArgumentError(f"baseline {baseline!r} is not among the steps {list(steps)}")
    check_run_time(min_run_time_s)
    runners = [_runner(step, name, num_threads) for name, step in steps.items()]
    for runner in runners:
        runner.attempt(runner.warm_up)
    timed = [runner for runner in runners if runner.failure is None]
    take_rounds(timed, min_run_time_s, seed=seed, own_time=_processor_time(runners[0].device))
    # Each rank has read it at another moment.
    others_share = _from_all(runners[0].others_share)[0]
    not_measured = []
    for runner in runners:
        runner.others_share = others_share
        # What failed after the last block was timed.
        runner.attempt(runner.step.clock)  # type: ignore[attr-defined]
        if runner.failure is not None:
            if runner.name == baseline:
                raise runner.failure
            not_measured.append(NotMeasured(name=runner.name, outcome="failed", reason=str(runner.failure)))
    rows = [_of_all_ranks(runner.result()) for runner in runners if runner.failure is None]
    return compare_measurements(rows, baseline=baseline, not_measured=not_measured, seed=seed)


def _runner(step: Step, name: str, num_threads: int | None) -> Runner:
    if not callable(step):
        raise InvalidArgumentError(f"step {name!r} is of type {type(step).__name__} (expected a callable)")
    device = device_of(step)
    ranked = _RankedStep(step, device)
    return Runner(ranked, name, device, num_threads, ranked.clock)


def _processor_time(device: torch.device) -> Callable[[], float]:
    """A clock of the processor time of all ranks together, seconds: they are not "other processes" to each other."""

    def own_time() -> float:
        used_s = torch.tensor([time.process_time()], dtype=torch.float64, device=device)
        dist.all_reduce(used_s)
        return float(used_s.item())

    return own_time


def _of_all_ranks(own: Measurement) -> Measurement:
    """One measurement of those of all ranks. Wall times are the same on all of them, by their clock."""
    ranks: list[Measurement] = _from_all(own)
    hosts = [rank.block_host_times_s for rank in ranks if rank.block_host_times_s is not None]
    host_times_s = tuple(max(times_s) for times_s in zip(*hosts, strict=True)) if hosts else None
    said: dict[str, list[int]] = {}
    for number, rank in enumerate(ranks):
        for warning in rank.warnings:
            said.setdefault(warning, []).append(number)
    return msgspec.structs.replace(
        own,
        block_host_times_s=host_times_s,
        host_time_s=None if host_times_s is None else _stats.median(host_times_s),
        kernel_time_s=_largest([rank.kernel_time_s for rank in ranks]),
        kernel_count=_largest([rank.kernel_count for rank in ranks]),
        peak_extra_bytes=_largest([rank.peak_extra_bytes for rank in ranks]),
        warnings=tuple(
            warning if len(numbers) == len(ranks) else f"rank {', '.join(map(str, numbers))}: {warning}"
            for warning, numbers in said.items()
        ),
        world_size=len(ranks),
    )


def _largest(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _from_all(value: Any) -> list[Any]:
    """What every rank has given, by rank."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered
