"""One step with its timer and the samples taken of it, and the rounds that interleave several."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch._dynamo.utils import counters
from torch.utils.benchmark import Timer
from torch.utils.benchmark import timer as synchronized_time

from optimbench import _format, _stats
from optimbench._cold_cache import ColdCalls
from optimbench._gpu_state import read_gpu_state
from optimbench._kernels import detach_profiler, kernel_times
from optimbench._machine_load import LoadMeter
from optimbench._steps import check_step, device_of, is_finite
from optimbench.devices import missing_compiler, usable_device
from optimbench.errors import InvalidArgumentError
from optimbench.limits import uncached_bytes_per_step
from optimbench.recipes import Step as BuiltStep
from optimbench.recipes import learning_rate_problems
from optimbench.results import Measurement

Step = Callable[[], object]
Clock = Callable[[], float]

# Simulated with noise of 2 %, drift of 10 % and one outlier in twenty, twenty rounds find a difference of 10 % in 99 of
# 100 comparisons, ten rounds in 95; tests/test_timing.py holds the default to 95 with more noise.
_ROUNDS = 20
_LEAST_ROUNDS = 10
# The first call compiles, the second can compile again (optimizer state exists by then), the rest settle caches.
_WARM_UP_CALLS = 5
# `Timer.timeit` makes this many calls, or a hundredth of the block, before it starts its clock.
_UNTIMED_CALLS = 2
# A call longer than this is timed alone, without those: what it finds in a cache no longer matters, and the time does.
_LONG_CALL_S = 0.05
# A wall time whose IQR is a larger share of its median than this is flagged; pyperf warns at the same share.
_NOISY_SHARE = 0.10
# A drifting clock: the medians of the first and of the last third of the blocks differ by more than this share.
_DRIFT_SHARE = 0.10
# Calls with an empty queue from which a block's host time is taken, or as many as the block has where those are fewer;
# one at a time, so the launch queue never fills up.
_HOST_CALLS = 5
# Other processes that use more than this share of all processors are named in a warning.
_BUSY_SHARE = 0.10
# Calls under the profiler: kernel times repeat within 1 %, so a few are enough.
_PROFILED_CALLS = 10


class Runner:
    """One step, its timer and the samples taken so far."""

    def __init__(
        self,
        step: Step,
        name: str,
        device: torch.device | str | None,
        num_threads: int | None,
        clock: Clock | None,
        *,
        cold_cache: bool = False,
    ) -> None:
        """Check the arguments of `optimbench.measure`.

        Raises:
            InvalidArgumentError: The step cannot be called or only makes a coroutine or a generator, the name is empty,
                the number of threads is not positive, or the device is neither the CPU nor a CUDA device.
            DeviceError: There is no such CUDA device.
            NoGradientError: No parameter of the step's optimizer has a gradient.
        """
        if not isinstance(name, str) or not name.strip():  # type: ignore[redundant-expr]
            raise InvalidArgumentError(f"name is {name!r} (expected a non-empty string)")
        if num_threads is not None and num_threads < 1:
            raise InvalidArgumentError(f"num_threads is {num_threads} (expected at least 1)")
        check_step(step, name)
        self.step = step
        self.name = name
        self.device = device_of(step) if device is None else usable_device(device)
        self._num_threads = num_threads or torch.get_num_threads()
        self._clock = clock or synchronized_time
        # The globals are a closure's, so that the step is found under one name whatever it is called outside.
        self._timer = Timer("step()", globals={"step": step}, timer=self._clock, num_threads=self._num_threads)
        self._cold_calls = ColdCalls(self.device) if cold_cache else None
        self.calls_per_block = 1
        self.call_s = 1.0
        self.failure: Exception | None = None
        self.others_share: float | None = None
        self._kernels: tuple[float, float] | None = None
        self._peak_extra_bytes: int | None = None
        self._warm_up_times_s: list[float] = []
        self._block_times_s: list[float] = []
        self._block_host_times_s: list[float] = []
        self._compiles_while_timed = 0

    @property
    def untimed_calls(self) -> int:
        """Calls that are made before each block."""
        return 0 if self.call_s > _LONG_CALL_S else _UNTIMED_CALLS

    def warm_up(self) -> None:
        """Make the first calls, timing each.

        Raises:
            CompilerNotFoundError: The step compiles, and Inductor finds no C++ compiler.
        """
        try:
            for _ in range(_WARM_UP_CALLS):
                start = self._clock()
                self.step()
                self._warm_up_times_s.append(self._clock() - start)
        except Exception as error:
            missing = missing_compiler(error)
            if missing is not None:
                raise missing from error
            for said in self._rate_problems():
                error.add_note(said)
            raise

    def attempt(self, take: Callable[[], None]) -> None:
        """Take a sample with the step's threads, unless it has failed before; where it fails now, keep why."""
        if self.failure is not None:
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(self._num_threads)
        try:
            take()
        except Exception as error:  # noqa: BLE001 - a step may raise anything, for example when memory runs out.
            self.failure = error
        finally:
            torch.set_num_threads(threads)

    def estimate(self) -> None:
        """Find out about how long a call takes, to choose the size of a block; flushing a cache is part of it."""
        if self._cold_calls is None:
            self.call_s = self._timer.timeit(2).median
        else:
            start = self._clock()
            self._cold_calls.mean_s(self.step, 2, self._clock)
            self.call_s = max((self._clock() - start) / 2, 1e-9)

    def take_block(self) -> None:
        """Time one block of calls, and on a GPU a few launches."""
        compiles = _compile_count()
        if self._cold_calls is not None:
            block_s = self._cold_calls.mean_s(self.step, self.calls_per_block, self._clock)
        elif self.untimed_calls:
            block_s = self._timer.timeit(self.calls_per_block).median
        else:
            start = self._clock()
            for _ in range(self.calls_per_block):
                self.step()
            block_s = (self._clock() - start) / self.calls_per_block
        self._block_times_s.append(block_s)
        if self.device.type == "cuda":
            launches = min(_HOST_CALLS, self.calls_per_block)
            self._block_host_times_s.append(_stats.median([self._launch_s() for _ in range(launches)]))
        self._compiles_while_timed += _compile_count() - compiles

    def take_profile(self) -> None:
        """Profile the kernels and watch the memory, on a GPU."""
        if self.device.type == "cuda":
            self._kernels = kernel_times(self.step, _PROFILED_CALLS)
            self._peak_extra_bytes = _peak_extra_bytes(self.step, self.device)

    def result(self) -> Measurement:
        """The measurement, once all blocks and the profile are taken."""
        host_time_s = _stats.median(self._block_host_times_s) if self._block_host_times_s else None
        kernel_time_s, kernel_count = self._kernels or (None, None)
        optimizer = _optimizer_of_whole_step(self.step)
        return Measurement(
            name=self.name,
            device=self.device.type,
            num_threads=self._num_threads,
            cold_cache=self._cold_calls is not None,
            calls_per_block=self.calls_per_block,
            block_times_s=tuple(self._block_times_s),
            median_s=_stats.median(self._block_times_s),
            iqr_s=_stats.interquartile_range(self._block_times_s),
            warm_up_calls=len(self._warm_up_times_s),
            first_call_s=self._warm_up_times_s[0],
            warm_up_s=sum(self._warm_up_times_s),
            block_host_times_s=tuple(self._block_host_times_s) if host_time_s is not None else None,
            host_time_s=host_time_s,
            kernel_time_s=kernel_time_s,
            kernel_count=kernel_count,
            peak_extra_bytes=self._peak_extra_bytes,
            least_bytes=None if optimizer is None else uncached_bytes_per_step(optimizer),
            warnings=tuple(self._warnings()),
        )

    def _launch_s(self) -> float:
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        self.step()
        return time.perf_counter() - start

    def _warnings(self) -> list[str]:
        said = []
        median_s, iqr_s = _stats.median(self._block_times_s), _stats.interquartile_range(self._block_times_s)
        if iqr_s > _NOISY_SHARE * median_s:
            said.append(
                f"noisy: the IQR of {_format.seconds(iqr_s)} is {iqr_s / median_s:.0%} of the median;"
                " stop what else runs here, or raise min_run_time_s"
            )
        third = len(self._block_times_s) // 3
        first_s, last_s = (_stats.median(part) for part in (self._block_times_s[:third], self._block_times_s[-third:]))
        if abs(last_s - first_s) > _DRIFT_SHARE * min(first_s, last_s):
            said.append(
                f"drifting: {_format.seconds(first_s)} in the first third of the blocks,"
                f" {_format.seconds(last_s)} in the last; let the machine settle, then measure again"
            )
        if self._compiles_while_timed:
            said.append(
                f"compiled {self._compiles_while_timed} times while it was timed, so these are not times of a"
                " compiled step; capture_recompiles tells why"
            )
        said += self._rate_problems()
        if not is_finite(self.step):
            said.append("a parameter is no longer finite after the steps taken; lower the learning rate")
        return said + self._busy_warnings() + self._gpu_warnings()

    def _rate_problems(self) -> tuple[str, ...]:
        # Only of an optimizer's own step, so eager: a tensor lr makes it slower without a word, or torch refuses it.
        owner = getattr(self.step, "__self__", None)
        return learning_rate_problems(owner) if isinstance(owner, torch.optim.Optimizer) else ()

    def _busy_warnings(self) -> list[str]:
        if self.others_share is None or self.others_share <= _BUSY_SHARE:
            return []
        return [f"other processes used {self.others_share:.0%} of the processors meanwhile; stop them"]

    def _gpu_warnings(self) -> list[str]:
        if self.device.type != "cuda":
            return []
        state = read_gpu_state(str(torch.cuda.get_device_properties(self.device).uuid))
        said = []
        if state.throttle_reasons:
            said.append(f"the GPU's clocks were lowered ({', '.join(state.throttle_reasons)}); let it cool")
        if state.other_processes:
            said.append(f"{state.other_processes} other processes were on the GPU; measure on a free one")
        return said


def take_rounds(
    runners: Sequence[Runner], min_run_time_s: float, *, seed: int, own_time: Clock = time.process_time
) -> None:
    """Time one block of every step in each round, in an order drawn anew, until each has its time.

    Blocks are as long as it takes to spread `min_run_time_s` over the rounds. The calls that the timer makes before
    it starts its clock count as spent: they bring back the caches that the other steps have used. A step that raises
    keeps the error as its `failure` and is left out of the rounds that follow; `own_time` is for `LoadMeter`.
    """
    for runner in runners:
        runner.attempt(runner.estimate)
    rounds = min((_rounds(r, min_run_time_s) for r in runners if r.failure is None), default=0)
    for runner in runners:
        runner.calls_per_block = max(1, int(min_run_time_s / max(rounds, 1) / runner.call_s) - runner.untimed_calls)
    order = np.random.default_rng(seed)
    load = LoadMeter(own_time)
    for _ in range(rounds):
        for index in order.permutation(len(runners)):
            runners[index].attempt(runners[index].take_block)
    others_share = load.others_share()
    for runner in runners:
        runner.others_share = others_share
        runner.attempt(runner.take_profile)
    detach_profiler()


def _optimizer_of_whole_step(step: Step) -> torch.optim.Optimizer | None:
    """The optimizer that updates all its parameters in this step: with its own method, or in one of `build_step`."""
    if isinstance(step, BuiltStep):
        return step.optimizer
    owner = getattr(step, "__self__", None)
    return owner if isinstance(owner, torch.optim.Optimizer) and getattr(step, "__name__", "") == "step" else None


def _rounds(runner: Runner, min_run_time_s: float) -> int:
    affordable = int(min_run_time_s / (runner.call_s * (1 + runner.untimed_calls)))
    return min(_ROUNDS, max(_LEAST_ROUNDS, affordable))


def _compile_count() -> int:
    return int(counters["stats"]["unique_graphs"])


def _peak_extra_bytes(step: Step, device: torch.device) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    return max(0, torch.cuda.max_memory_allocated(device) - before)
