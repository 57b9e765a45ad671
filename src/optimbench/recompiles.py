"""Count the compiles and recompiles in a block of code, and say why each one happened."""

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
import torch._dynamo
from torch._dynamo import utils as dynamo_utils

from optimbench._compile_events import Event, build_log
from optimbench.errors import CaptureError, InvalidArgumentError
from optimbench.results import RecompileLog

__all__ = ["Capture", "capture_recompiles", "log_compiles"]

P = ParamSpec("P")
T = TypeVar("T")

# The caches, the metrics and the reset belong to the process, so there can be one capture in it at a time.
_one_at_a_time = threading.Lock()

# Torch prints here what a capture tells; the records carry process ids and absolute paths.
_RAW_LOGGERS = (
    "torch._dynamo.guards.__recompiles",
    "torch._dynamo.guards.__recompiles_verbose",
    "torch._dynamo.convert_frame",
)
_LIMIT_WARNING = "torch._dynamo hit config."

_NEEDED_FUNCTIONS = ("get_compilation_metrics", "set_compilation_metrics_limit", "CompilationMetrics", "counters")
_NEEDED_FIELDS = ("compile_id", "co_name", "graph_op_count", "recompile_reason", "fail_type", "fail_reason")


class Capture:
    """What `capture_recompiles` yields: it watches a step, and has the log once the block has ended.

    Example:
        >>> import optimbench as ob
        >>> with ob.capture_recompiles() as capture:
        ...     step = capture.watch(lambda: None)
        ...     step()
        >>> capture.log.calls, capture.log.n_compiles
        (1, 0)
    """

    def __init__(self) -> None:
        """Start from the metrics and counters as they are now."""
        self._seen = dynamo_utils.get_compilation_metrics()
        self._seen_ids = {id(metrics) for metrics in self._seen}
        self._breaks_before = dict(dynamo_utils.counters["graph_break"])
        self._graphs_before = dynamo_utils.counters["stats"]["unique_graphs"]
        self._recompile_limit = torch._dynamo.config.recompile_limit
        self._events: list[Event] = []
        self._calls: int | None = None
        self._log: RecompileLog | None = None
        self._problem = "the block has not ended: read capture.log after the with statement"

    @property
    def log(self) -> RecompileLog:
        """Every compile of the block.

        Raises:
            CaptureError: The block has not ended yet, or torch's metrics were cleared inside it.
        """
        if self._log is None:
            raise CaptureError(self._problem)
        return self._log

    def watch(self, step: Callable[P, T]) -> Callable[P, T]:
        """Count the calls of a step, so that the log can say in which of them each compile happened.

        Args:
            step: The step as a training loop calls it, usually a compiled function or one that calls it.

        Returns:
            A function that calls the step and passes arguments, result and exceptions on. It still works after the
            block, and counts no longer. Call it from one thread.

        Raises:
            CaptureError: A step is watched already, or the block has ended.
        """
        if self._calls is not None or self._log is not None:
            raise CaptureError("a capture watches one step, inside its block: use one capture for each step")
        self._calls = 0

        @functools.wraps(step)
        def watched(*args: P.args, **kwargs: P.kwargs) -> T:
            if self._log is not None:
                return step(*args, **kwargs)
            self._collect(None)
            self._calls = call = (self._calls or 0) + 1
            try:
                return step(*args, **kwargs)
            finally:
                self._collect(call)

        return watched

    def _collect(self, call: int | None) -> None:
        """File what torch has added to its metrics since the last time under a call."""
        for metrics in dynamo_utils.get_compilation_metrics():
            if id(metrics) in self._seen_ids:
                continue
            # Kept, so that no later entry can have the same id.
            self._seen.append(metrics)
            self._seen_ids.add(id(metrics))
            self._events.append(Event.of(metrics, call))

    def _finish(self) -> None:
        self._collect(None)
        n_graphs = dynamo_utils.counters["stats"]["unique_graphs"] - self._graphs_before
        if n_graphs > 0 and not self._events:
            self._problem = f"torch compiled {n_graphs} graphs, but its compilation metrics were cleared in the block"
            return
        breaks = {
            reason: count - self._breaks_before.get(reason, 0)
            # Sorted, since torch keeps them in the order in which this process met them first.
            for reason, count in sorted(dynamo_utils.counters["graph_break"].items())
            if count > self._breaks_before.get(reason, 0)
        }
        self._log = build_log(
            self._events,
            breaks=breaks,
            recompile_limit=self._recompile_limit,
            calls=self._calls,
            switched_off=torch._dynamo.config.disable,
        )


@contextmanager
def capture_recompiles() -> Iterator[Capture]:
    """Record every compile and recompile that happens inside the block, in any thread.

    What counts is what torch's own metrics and counters show (`torch._dynamo.utils.get_compilation_metrics`), so it
    does not depend on `TORCH_LOGS`, on handlers of loggers, or on how many compiles there were before:

    * A compile is one of a frame that has tensor operations. A step that calls `optimizer.step()` is several frames;
      those that only call the next one are not counted. So the number of compiles is the number of graphs with an
      operation that torch compiled (`counters["stats"]["unique_graphs"]` also has empty ones, as a step that ends in
      `print(x.item())` leaves), plus recompiles of such a frame that turned out to have no operation, as with no
      gradient at all.
    * A recompile is a compile of a frame after a guard of an earlier one had failed. Its reason is the guard that
      failed in the compile used last. The value it was compiled for is named; the new one only where torch tells it,
      which is when the guard on it fails later.
    * A frame that passed torch's recompile limit is in `over_limit`. From then on torch runs it eagerly wherever none
      of the compiles it has fits.

    On entry torch's compile caches are reset (`torch._dynamo.reset`), so counts do not depend on what ran before;
    functions compiled before are compiled again when they are next called. While the block runs, torch's own
    records of recompiles and of the limit are not emitted, since the log tells the same; afterwards, also after an
    exception, logging is as it was, and the log is complete up to that point.

    Yields:
        A `Capture`; its `log` can be read once the block has ended.

    Raises:
        CaptureError: A capture is open already, in this thread or another; or this release of torch lacks the metrics
            that are needed.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4, 4))
        >>> weight.grad = torch.ones(4, 4)
        >>> optimizer = torch.optim.Adam([weight], lr=torch.tensor(0.01))
        >>> compiled_step = torch.compile(lambda: optimizer.step(), backend="eager")
        >>> with ob.capture_recompiles() as capture:
        ...     step = capture.watch(compiled_step)
        ...     for _ in range(5):
        ...         step()
        >>> capture.log.n_compiles, capture.log.n_recompiles, capture.log.calls
        (1, 0, 5)
    """
    _require_metrics()
    if not _one_at_a_time.acquire(blocking=False):
        raise CaptureError("a capture is open already, and torch's caches are the process's: let its block end first")
    try:
        torch._dynamo.reset()
        with _raw_records_hidden(), _all_metrics_kept():
            capture = Capture()
            try:
                yield capture
            finally:
                capture._finish()
    finally:
        _one_at_a_time.release()


def log_compiles(
    step: Callable[[], object],
    *,
    calls: int,
    after_each: Callable[[int], object] | None = None,
    backend: str | Callable[..., object] = "inductor",
) -> RecompileLog:
    """Compile a step, call it some times inside `capture_recompiles`, and return the log.

    Args:
        step: Not compiled yet. It is really taken: parameters and optimizer state move on.
        calls: How often it is called.
        after_each: Called after each call of the step with the call's number, counted from one, to change what may
            change between two steps, for example by a scheduler. It is not compiled.
        backend: As in `torch.compile`. "aot_eager" generates no code and so is quicker. Backends rely on different
            values, so a count holds for the one it was taken with.

    Raises:
        CaptureError: As in `capture_recompiles`.
        InvalidArgumentError: There are no calls.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(4))
        >>> weight.grad = torch.ones(4)
        >>> optimizer = torch.optim.SGD([weight], lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
        >>> log = ob.log_compiles(optimizer.step, calls=4, backend="aot_eager", after_each=lambda _: scheduler.step())
        >>> log.n_compiles, log.n_recompiles
        (4, 3)
    """
    if calls < 1:
        raise InvalidArgumentError(f"calls is {calls} (expected at least 1)")
    with capture_recompiles() as capture:
        watched = capture.watch(torch.compile(step, backend=backend))
        for number in range(1, calls + 1):
            watched()
            if after_each is not None:
                after_each(number)
    return capture.log


def _require_metrics() -> None:
    missing = [name for name in _NEEDED_FUNCTIONS if not hasattr(dynamo_utils, name)]
    if not missing:
        fields = dynamo_utils.CompilationMetrics.__dataclass_fields__
        missing = [f"CompilationMetrics.{name}" for name in _NEEDED_FIELDS if name not in fields]
    if missing:
        raise CaptureError(
            f"torch {torch.__version__} has no torch._dynamo.utils.{missing[0]}, so recompiles cannot be counted"
        )


@contextmanager
def _raw_records_hidden() -> Iterator[None]:
    # Filters of a logger, and not its level or handlers: those may change inside the block, by torch._logging.set_logs.
    loggers = [logging.getLogger(name) for name in _RAW_LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_not_told_by_the_log)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_not_told_by_the_log)


def _is_not_told_by_the_log(record: logging.LogRecord) -> bool:
    return record.name not in _RAW_LOGGERS[:2] and not str(record.msg).startswith(_LIMIT_WARNING)


@contextmanager
def _all_metrics_kept() -> Iterator[None]:
    # Torch keeps the last 64 entries only, and a compiled step has about four frames.
    limit = dynamo_utils._compilation_metrics.maxlen
    dynamo_utils.set_compilation_metrics_limit(sys.maxsize)
    try:
        yield
    finally:
        dynamo_utils.set_compilation_metrics_limit(sys.maxsize if limit is None else limit)
