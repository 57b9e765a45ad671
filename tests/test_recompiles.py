"""Counts are compared with torch's own, and hints are tried: the advice must stop the recompiles it is given for."""

import copy
import doctest
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch._dynamo import utils as dynamo_utils
from torch._logging._internal import set_logs
from torch.optim import Optimizer, lr_scheduler

from optimbench import _guards, recompiles
from optimbench.errors import CaptureError, InvalidArgumentError
from optimbench.recompiles import capture_recompiles, log_compiles
from optimbench.results import RecompileLog

N_STEPS = 12
LIMIT = torch._dynamo.config.recompile_limit
# Guards the same values as Inductor, which the backend "eager" does not, and builds nothing in C++.
LIKE_INDUCTOR = "aot_eager"


@pytest.fixture(autouse=True)
def _leave_nothing_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def parameters(n: int = 2) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    made = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(n)]
    for parameter in made:
        parameter.grad = torch.randn(4, 4)
    return made


def compiled(optimizer: Optimizer, backend: Any = "eager", **options: bool | None) -> Callable[[], None]:
    def step() -> None:
        optimizer.step()

    made: Callable[[], None] = torch.compile(step, backend=backend, **options)  # type: ignore[arg-type]
    return made


def followed_by(step: Callable[[], None], after: Callable[[], object]) -> Callable[[], None]:
    def both() -> None:
        step()
        after()

    return both


def captured(step: Callable[[], object], n_steps: int = N_STEPS) -> RecompileLog:
    """The log of some steps, after a comparison of its counts with those that torch's counters and metrics give."""
    graphs_before = dynamo_utils.counters["stats"]["unique_graphs"]
    with capture_recompiles() as capture:
        known = dynamo_utils.get_compilation_metrics()
        run_steps(capture.watch(step), n_steps)
        new = [m for m in dynamo_utils.get_compilation_metrics() if all(m is not old for old in known)]
    log = capture.log
    assert log.calls == n_steps
    assert log.n_compiles == dynamo_utils.counters["stats"]["unique_graphs"] - graphs_before
    assert log.n_recompiles == sum(bool(m.recompile_reason and m.graph_op_count) for m in new)
    assert_tells_nothing_of_the_machine(log)
    return log


def assert_tells_nothing_of_the_machine(log: RecompileLog) -> None:
    for shown in (msgspec.json.encode(log).decode(), str(log), log._repr_html_()):
        assert not re.search(r"(?<![\w.<:/])/[\w.-]+/", shown), shown
        assert not re.search(r"0x[0-9a-f]{6,}|\b\d{9,}\b(?!\.)", re.sub(r"\d*\.\d+", "", shown)), shown
        assert str(Path.home().name) == "root" or Path.home().name not in shown


def run_steps(step: Callable[[], object], n_steps: int) -> None:
    for _ in range(n_steps):
        step()


def counts(log: RecompileLog) -> tuple[int, int]:
    return log.n_compiles, log.n_recompiles


def only_hint(log: RecompileLog) -> str:
    hints = {compilation.hint for compilation in log.compilations} - {""}
    assert len(hints) == 1
    return hints.pop()


def step_and_schedule_in_one(optimizer: Optimizer, backend: str) -> Callable[[], None]:
    scheduler = lr_scheduler.LinearLR(optimizer, total_iters=N_STEPS)

    @torch.compile(backend=backend)
    def step() -> None:
        optimizer.step()
        scheduler.step()

    return step


class TestLearningRate:
    def test_foreach_with_a_float_recompiles_to_the_limit_and_is_eager_from_then_on(self) -> None:
        optimizer = torch.optim.Adam(parameters(), lr=0.01, foreach=True)
        log = captured(step_and_schedule_in_one(optimizer, LIKE_INDUCTOR))
        assert counts(log) == (LIMIT, LIMIT - 1)
        assert log.limit_hit
        assert log.over_limit == ("step",)
        assert log.recompile_limit == LIMIT
        assert log.eager_since_call == LIMIT + 1
        assert [c.call for c in log.compilations] == list(range(1, LIMIT + 1))
        assert f"step has been eager since call {LIMIT + 1}" in log.summary
        second = log.compilations[1]
        assert second.reasons == ("lr of param group 0 changed from 0.003333 to 0.003889",)
        assert "self.param_groups[0]['lr']" in second.guards[0]
        assert second.guards[0].endswith("== 0.003333333333333333")
        assert second.location.startswith("torch/optim/adam.py:")
        assert second.duration_s is not None
        assert second.duration_s > 0
        assert "lr=torch.tensor(0.01)" in only_hint(log)

    def test_single_tensor_with_a_float_recompiles_once(self) -> None:
        optimizer = torch.optim.Adam(parameters(), lr=0.01, foreach=False)
        log = captured(step_and_schedule_in_one(optimizer, LIKE_INDUCTOR))
        assert counts(log) == (2, 1)
        assert not log.limit_hit
        assert log.eager_since_call is None
        assert log.compilations[1].reasons == ("lr of param group 0 changed: compiled for 0.003333",)

    @pytest.mark.parametrize(
        ("optimizer_class", "backend"),
        [(torch.optim.Adam, "inductor"), (torch.optim.RMSprop, LIKE_INDUCTOR), (torch.optim.SGD, LIKE_INDUCTOR)],
    )
    def test_a_tensor_compiles_once_and_never_again(
        self, optimizer_class: type[torch.optim.Adam], backend: str
    ) -> None:
        optimizer = optimizer_class(parameters(), lr=torch.tensor(0.01))
        log = captured(step_and_schedule_in_one(optimizer, backend))
        assert counts(log) == (1, 0)
        assert log.not_compiled == ""
        assert log.summary.startswith("1 compiled, 0 of them again")

    @pytest.mark.parametrize(("backend", "n_recompiles"), [("eager", 1), ("inductor", LIMIT - 1)])
    def test_the_count_is_that_of_the_backend(self, backend: str, n_recompiles: int) -> None:
        optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        log = captured(followed_by(compiled(optimizer, backend), scheduler.step))
        assert counts(log) == (n_recompiles + 1, n_recompiles)
        assert log.limit_hit == (backend == "inductor")
        assert log.compilations[1].reasons == ("the optimizer had no state yet",)

    def test_a_step_before_the_first_compiled_one_creates_the_state(self) -> None:
        optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
        log = captured(compiled(optimizer))
        assert counts(log) == (2, 1)
        assert "one eager step" in only_hint(log)
        with_state = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
        with_state.step()
        assert counts(captured(compiled(with_state))) == (1, 0)


def one_cycle(optimizer: Optimizer, *, cycle_momentum: bool = True) -> Callable[[], None]:
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2 * N_STEPS, cycle_momentum=cycle_momentum)
    return followed_by(compiled(optimizer, LIKE_INDUCTOR), scheduler.step)


def test_a_scheduler_that_cycles_betas_recompiles_to_the_limit_and_the_hint_stops_it() -> None:
    optimizer = torch.optim.AdamW(parameters(), lr=torch.tensor(0.1))
    step = one_cycle(optimizer)
    old = optimizer.param_groups[0]["betas"][0]
    log = captured(step)
    assert counts(log) == (LIMIT, LIMIT - 1)
    assert log.limit_hit
    assert log.compilations[1].reasons[0].startswith(f"betas[0] of param group 0 changed from {old:.4g} to 0.9")
    assert "cycle_momentum=False" in only_hint(log)
    fixed = torch.optim.AdamW(parameters(), lr=torch.tensor(0.1))
    assert counts(captured(one_cycle(fixed, cycle_momentum=False))) == (1, 0)


def test_past_the_limit_torch_still_uses_the_compiles_that_fit() -> None:
    """So "eager since" holds where no earlier compile fits, as `over_limit` says."""
    n_compiled_runs = 0

    def backend(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., object]:
        def run(*args: torch.Tensor) -> object:
            nonlocal n_compiled_runs
            n_compiled_runs += 1
            return graph(*args)

        return run

    @torch.compile(backend=backend)
    def scale(x: torch.Tensor, text: str) -> torch.Tensor:
        return x * len(text)

    x, texts = torch.ones(3), ["a" * n for n in range(N_STEPS)]
    given = itertools.cycle(texts)
    log = captured(lambda: scale(x, next(given)), 2 * N_STEPS)
    assert log.over_limit == ("scale",)
    assert log.eager_since_call == LIMIT + 1
    assert n_compiled_runs == 2 * LIMIT


def test_the_limit_is_the_one_in_force_when_it_was_passed() -> None:
    step = step_and_schedule_in_one(torch.optim.Adam(parameters(), lr=0.01, foreach=True), LIKE_INDUCTOR)
    with capture_recompiles() as capture, torch._dynamo.config.patch(recompile_limit=2):
        for _ in range(4):
            step()
    assert counts(capture.log) == (2, 1)
    assert capture.log.recompile_limit == 2
    assert capture.log.limit_hit


def test_a_recompile_that_ends_in_a_graph_break_is_none() -> None:
    @torch.compile(backend="eager")
    def add_twice(x: torch.Tensor, interrupted: bool) -> torch.Tensor:
        for _ in range(2):
            x = x + 1
            if interrupted:
                torch._dynamo.graph_break()
        return x

    with capture_recompiles() as capture:
        add_twice(torch.ones(2), False)
        add_twice(torch.ones(2), True)
        torch.compiler.reset()  # Torch does not try again by itself.
        add_twice(torch.ones(2), True)
    assert counts(capture.log) == (1, 0)
    assert [broken.count for broken in capture.log.graph_breaks] == [2]


def with_closure(optimizer: Optimizer) -> Callable[[], torch.Tensor]:
    step: Any = torch.compile(optimizer.step, backend="eager")
    return lambda: step(lambda: torch.tensor(1.0))


def with_sparse_gradients() -> list[torch.nn.Parameter]:
    made = parameters()
    for parameter in made:
        assert parameter.grad is not None
        parameter.grad = parameter.grad.to_sparse()
    return made


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda: with_closure(torch.optim.LBFGS(parameters())), "passes over this step.*LBFGS step not supported"),
        (lambda: compiled(torch.optim.SparseAdam(with_sparse_gradients())), "SparseAdam step not supported"),
        (lambda: compiled(torch.optim.Adafactor(parameters())), r"The graph broke before .* Tensor.item\(\)"),
        (lambda: compiled(torch.optim.Adam(parameters(), fused=True)), "fused optimizer"),
        (lambda: lambda: None, "^No function made by torch.compile ran.$"),
        (lambda: torch.compile(lambda: None, backend="eager"), "found no tensor operation"),
    ],
    ids=["LBFGS", "SparseAdam", "Adafactor", "fused", "eager", "no-operation"],
)
def test_what_is_not_compiled_is_said_to_be_so_with_the_reason(
    step: Callable[[], Callable[[], object]], reason: str
) -> None:
    log = captured(step(), 3)
    assert counts(log) == (0, 0)
    assert log.summary.startswith("Not compiled. ")
    assert "recompile" not in log.summary
    assert re.search(reason, log.not_compiled)


def test_without_any_gradient_nothing_is_compiled() -> None:
    optimizer = torch.optim.Adam(parameters())
    optimizer.zero_grad()
    assert "are there gradients?" in captured(compiled(optimizer), 3).not_compiled


def test_torch_compile_switched_off_is_the_reason() -> None:
    with torch._dynamo.config.patch(disable=True):
        assert "switched off" in captured(compiled(torch.optim.Adam(parameters())), 3).not_compiled


@pytest.mark.parametrize("foreach", [True, False])
def test_every_new_set_of_gradients_is_a_recompile(foreach: bool) -> None:
    made = parameters(3)
    gradients = [parameter.grad for parameter in made]
    subsets = list(itertools.product([True, False], repeat=3))[:-1]
    assert len(subsets) == 7
    optimizer = torch.optim.Adam(made, foreach=foreach)
    given = itertools.cycle(subsets)

    def choose() -> None:
        for parameter, gradient, present in zip(made, gradients, next(given), strict=True):
            parameter.grad = gradient if present else None

    choose()
    log = captured(followed_by(compiled(optimizer), choose), 2 * len(subsets))
    assert counts(log) == (7, 6)
    assert log.compilations[1].reasons == ("gradient of parameter 2 of param group 0 is None now, and was not",)
    # Of two that differ, torch names the first; from (1, 1, 0) to (1, 0, 1) that is parameter 1.
    assert log.compilations[2].reasons == ("gradient of parameter 1 of param group 0 is None now, and was not",)
    assert log.compilations[3].reasons == ("gradient of parameter 2 of param group 0 is None now, and was not",)
    assert log.compilations[4].reasons == ("gradient of parameter 0 of param group 0 is None now, and was not",)
    assert "set_to_none=False" in only_hint(log)


def test_a_step_without_gradients_among_others_counts_as_torch_logs_it() -> None:
    optimizer = torch.optim.Adam(parameters())
    step = compiled(optimizer)
    with capture_recompiles() as capture:
        step()
        optimizer.zero_grad()
        step()
    assert counts(capture.log) == (2, 1)


def test_zeroed_gradients_do_not_recompile() -> None:
    optimizer = torch.optim.Adam(parameters(3))
    log = captured(followed_by(compiled(optimizer), lambda: optimizer.zero_grad(set_to_none=False)))
    assert counts(log) == (1, 0)


def test_loading_a_state_between_two_steps_recompiles_and_says_why() -> None:
    optimizer = torch.optim.Adam(parameters())
    step = compiled(optimizer)
    with capture_recompiles() as capture:
        for _ in range(3):
            step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for _ in range(3):
            step()
    assert counts(capture.log) == (2, 1)
    assert capture.log.compilations[1].reasons == (
        "a tensor in the optimizer's state is another Tensor than the one compiled for",
    )
    assert "load_state_dict" in only_hint(capture.log)
    assert_tells_nothing_of_the_machine(capture.log)
    # The hint: load first, then compile.
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert counts(captured(step)) == (1, 0)


def test_a_changed_option_is_named() -> None:
    optimizer = torch.optim.Adam(parameters())
    decays = iter([0.1, 0.2, 0.3])
    log = captured(
        followed_by(compiled(optimizer), lambda: optimizer.param_groups[0].update(weight_decay=next(decays))), 3
    )
    assert log.n_recompiles > 0
    assert log.compilations[1].reasons == ("weight_decay of param group 0 changed: compiled for 0",)
    assert only_hint(log).startswith("Keep weight_decay fixed")


def test_parameters_and_groups_that_are_added_are_named() -> None:
    optimizer = torch.optim.Adam(parameters())
    step = compiled(optimizer)
    with capture_recompiles() as capture:
        step()
        optimizer.param_groups[0]["params"].extend(parameters(1))
        step()
        optimizer.add_param_group({"params": parameters(1)})
        step()
    assert [c.reasons for c in capture.log.compilations[1:]] == [
        ("number of parameters of param group 0 changed: compiled for 2",),
        ("number of param groups changed: compiled for 1",),
    ]


class Counting(Optimizer):
    """A user's own optimizer with a step counter in its state."""

    def __init__(self, params: list[torch.nn.Parameter], zero: int | torch.Tensor) -> None:
        super().__init__(params, {"lr": 0.1})
        for parameter in params:
            self.state[parameter]["step"] = copy.copy(zero)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["step"] += 1
                parameter.sub_(group["lr"] * parameter.grad / (1 - 0.9 ** self.state[parameter]["step"]))


class TestStepCounter:
    def test_a_number_recompiles_once_and_is_named(self) -> None:
        log = captured(compiled(Counting(parameters(), 0)))
        assert counts(log) == (2, 1)
        assert log.compilations[1].reasons == ("'step' in the optimizer's state of tensor 0 changed: compiled for 0",)
        assert "['step'] == 0" in log.compilations[1].guards[0]

    def test_a_number_recompiles_every_step_where_torch_keeps_numbers_static(self) -> None:
        log = captured(compiled(Counting(parameters(), 0), dynamic=False))
        assert counts(log) == (LIMIT, LIMIT - 1)
        assert log.limit_hit
        assert log.compilations[2].reasons == ("'step' in the optimizer's state of tensor 0 changed from 1 to 2",)
        assert "Make 'step' in the optimizer's state a tensor" in only_hint(log)

    @pytest.mark.parametrize("dynamic", [None, False])
    def test_a_tensor_does_not_recompile(self, dynamic: bool | None) -> None:
        assert counts(captured(compiled(Counting(parameters(), torch.tensor(0.0)), dynamic=dynamic))) == (1, 0)


class TestManyOptimizers:
    """Twelve optimizers, one after the other, through one compiled function."""

    @staticmethod
    def helper() -> Callable[[Optimizer], None]:
        @torch.compile(backend="eager")
        def step_of(optimizer: Optimizer) -> None:
            optimizer.step()

        return step_of

    def test_each_capture_sees_a_fresh_compile_and_no_limit(self) -> None:
        step_of = self.helper()
        for _ in range(N_STEPS):
            optimizer = torch.optim.Adam(parameters())
            log = captured(lambda optimizer=optimizer: step_of(optimizer), 2)  # type: ignore[misc]
            assert counts(log) == (1, 0)
            assert not log.limit_hit

    def test_in_one_capture_they_share_the_limit(self) -> None:
        step_of = self.helper()
        optimizers = [torch.optim.Adam(parameters()) for _ in range(N_STEPS)]
        given = iter(optimizers)
        log = captured(lambda: step_of(next(given)))
        assert counts(log) == (LIMIT, LIMIT - 1)
        assert log.over_limit == ("step_of",)
        assert log.compilations[1].reasons == ("self is another Adam than the one compiled for",)
        assert "torch.compiler.reset()" in only_hint(log)

    def test_optimizers_that_are_gone_count_all_the_same(self) -> None:
        step_of = self.helper()
        log = captured(lambda: step_of(torch.optim.Adam(parameters())), 2)
        assert counts(log) == (2, 1)
        assert log.compilations[1].reasons == ("self of the earlier compile no longer exists, another one is given",)

    def test_a_reset_between_them_helps_and_confuses_no_count(self) -> None:
        step_of = self.helper()

        def fresh() -> None:
            torch.compiler.reset()
            step_of(torch.optim.Adam(parameters()))

        log = captured(fresh)
        assert counts(log) == (N_STEPS, 0)
        assert not log.limit_hit


def test_a_new_value_is_not_taken_from_a_compile_after_a_reset() -> None:
    """Torch numbers its compiles from the start then, and the numbers say nothing of those before."""

    def run(lr: float, n_steps: int) -> None:
        optimizer = torch.optim.SGD(parameters(), lr=lr)
        step, scheduler = compiled(optimizer, LIKE_INDUCTOR), lr_scheduler.ExponentialLR(optimizer, 0.5)
        for _ in range(n_steps):
            step()
            scheduler.step()

    with capture_recompiles() as capture:
        run(0.1, 2)
        torch.compiler.reset()
        run(0.8, 3)
    assert [c.reasons for c in capture.log.compilations] == [
        (),
        ("lr of param group 0 changed: compiled for 0.1",),
        (),
        ("lr of param group 0 changed from 0.8 to 0.4",),
        ("lr of param group 0 changed: compiled for 0.4",),
    ]


def without_durations(log: RecompileLog) -> RecompileLog:
    compilations = tuple(msgspec.structs.replace(c, duration_s=None) for c in log.compilations)
    return msgspec.structs.replace(log, compilations=compilations)


def float_lr_step() -> Callable[[], None]:
    return step_and_schedule_in_one(torch.optim.Adam(parameters(), lr=0.01, foreach=False), "eager")


def test_counts_are_the_same_alone_and_after_another_capture() -> None:
    step = float_lr_step()
    first = captured(step)
    optimizer = torch.optim.Adam(parameters(), lr=0.01, foreach=False)
    compiled(optimizer)()
    second = captured(float_lr_step())
    assert without_durations(first) == without_durations(second)
    assert counts(captured(step)) == (1, 0)  # The schedule is over, so only the fresh compile is left.


def test_log_compiles_takes_the_steps_and_what_is_done_after_each() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=1.0, foreach=True)
    seen = []

    def halve(call: int) -> None:
        seen.append((call, weight[0].item()))
        optimizer.param_groups[0]["lr"] /= 2

    log = log_compiles(optimizer.step, calls=3, after_each=halve, backend="aot_eager")
    assert seen == [(1, 0.0), (2, -0.5), (3, -0.75)]
    assert (log.calls, log.n_compiles, log.n_recompiles) == (3, 3, 2)
    assert [compilation.call for compilation in log.compilations] == [1, 2, 3]


def test_log_compiles_hands_the_backend_on() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    graphs = []

    def backend(graph_module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph_module)
        return graph_module.forward

    assert log_compiles(torch.optim.SGD([weight], lr=1.0).step, calls=2, backend=backend).n_compiles == len(graphs) == 1


def test_log_compiles_needs_a_call() -> None:
    with pytest.raises(InvalidArgumentError, match="calls is 0"):
        log_compiles(lambda: None, calls=0)


def test_more_compiles_than_torch_keeps_are_all_counted() -> None:
    kept = dynamo_utils._compilation_metrics.maxlen
    assert kept is not None
    double = torch.compile(lambda x: x * 2, backend="eager")

    def fresh() -> None:
        torch.compiler.reset()
        double(torch.ones(2))

    with capture_recompiles() as capture:
        for _ in range(kept + 10):
            fresh()
    assert counts(capture.log) == (kept + 10, 0)
    assert dynamo_utils._compilation_metrics.maxlen == kept
    assert len(dynamo_utils.get_compilation_metrics()) == kept


RUN_ALONE = """
import msgspec, test_recompiles as t
print(msgspec.json.encode(t.without_durations(t.captured(t.float_lr_step()))).decode())
"""


def run_alone(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_log_does_not_depend_on_torch_logs() -> None:
    # Of the two kinds of records, torch writes the verbose one, which has more guards, where both are asked for.
    alone = run_alone(RUN_ALONE, TORCH_LOGS="recompiles,recompiles_verbose,+dynamo")
    assert "Step 1: torchdynamo start tracing" in alone.stderr  # So the variable was heeded.
    log = msgspec.json.decode(alone.stdout.splitlines()[-1], type=RecompileLog)
    assert log == without_durations(captured(float_lr_step()))
    assert counts(log) == (2, 1)
    assert "Recompiling function" not in alone.stderr + alone.stdout


def divide_by_zero(condition: bool) -> None:
    assert condition
    raise ZeroDivisionError


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def n_recompiles(self) -> int:
        return sum(message.startswith("Recompiling function") for message in self.messages)


LOGGER_NAMES = ("torch", "torch._dynamo", "torch._dynamo.guards", *recompiles._RAW_LOGGERS)


def logging_state() -> list[tuple[object, ...]]:
    loggers = [logging.getLogger(name) for name in LOGGER_NAMES]
    return [(x.level, x.propagate, x.disabled, tuple(x.handlers), tuple(x.filters)) for x in loggers]


@pytest.fixture
def handlers() -> Iterator[tuple[Collecting, Collecting]]:
    """One handler on a parent and one on a child, while torch's own log of recompiles is on."""
    set_logs(recompiles=True)
    on_parent, on_child = Collecting(), Collecting()
    parent, child = logging.getLogger("torch._dynamo"), logging.getLogger("torch._dynamo.guards.__recompiles")
    parent.addHandler(on_parent)
    child.addHandler(on_child)
    yield on_parent, on_child
    parent.removeHandler(on_parent)
    child.removeHandler(on_child)
    set_logs()


class TestLogging:
    def test_handlers_change_no_count_and_get_no_raw_record(
        self, handlers: tuple[Collecting, Collecting], capfd: pytest.CaptureFixture[str]
    ) -> None:
        before = logging_state()
        assert counts(captured(float_lr_step())) == (2, 1)
        assert [handler.n_recompiles() for handler in handlers] == [0, 0]
        assert "Recompiling function" not in capfd.readouterr().err
        assert logging_state() == before

    def test_torch_logs_recompiles_again_afterwards(self, handlers: tuple[Collecting, Collecting]) -> None:
        captured(lambda: None, 1)
        step = float_lr_step()
        for _ in range(N_STEPS):
            step()
        assert handlers[1].n_recompiles() == 1

    def test_logging_is_restored_after_an_error(self, handlers: tuple[Collecting, Collecting]) -> None:
        assert handlers
        before = logging_state()
        with pytest.raises(ZeroDivisionError), capture_recompiles():
            divide_by_zero(logging_state() != before)
        assert logging_state() == before

    def test_the_warning_of_the_limit_is_not_printed_either(self, capfd: pytest.CaptureFixture[str]) -> None:
        lengthen = torch.compile(lambda x, text: x * len(text), backend="eager")
        texts = ("a" * n for n in itertools.count())
        assert captured(lambda: lengthen(torch.ones(2), next(texts))).limit_hit
        assert "torch._dynamo hit config" not in capfd.readouterr().err


def raising_backend(_graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Callable[..., object]:
    raise ValueError("no code for /home/someone/model.py\nmore")


class TestFailures:
    def test_a_failed_compile_passes_its_exception_on_and_is_told(self) -> None:
        step = compiled(torch.optim.Adam(parameters()), raising_backend)
        with pytest.raises(Exception, match="no code for"), capture_recompiles() as capture:
            capture.watch(step)()
        log = capture.log
        assert log.calls == 1
        assert counts(log) == (0, 0)
        assert [c.failure for c in log.compilations] == ["BackendCompilerFailed: ValueError: no code for model.py"]
        assert log.not_compiled == "Compiling failed: BackendCompilerFailed: ValueError: no code for model.py."
        assert_tells_nothing_of_the_machine(log)

    def test_a_suppressed_failure_reads_fell_back_to_eager(self) -> None:
        with torch._dynamo.config.patch(suppress_errors=True):
            log = captured(compiled(torch.optim.Adam(parameters()), raising_backend), 2)
        assert counts(log) == (0, 0)
        assert "fell back to eager" in log.not_compiled
        assert all(c.failure.startswith("fell back to eager: BackendCompilerFailed") for c in log.compilations)

    def test_a_recompile_that_torch_is_told_to_refuse_names_the_function(self) -> None:
        step = step_and_schedule_in_one(torch.optim.Adam(parameters(), lr=0.01), "eager")
        refusing = torch._dynamo.config.patch(error_on_recompile=True)
        with pytest.raises(torch._dynamo.exc.RecompileError), refusing, capture_recompiles() as capture:
            run_steps(step, 3)
        assert counts(capture.log) == (1, 0)
        refused = capture.log.compilations[-1]
        assert (refused.function, refused.location) == ("step", capture.log.compilations[0].location)
        assert refused.failure.startswith("RecompileError: Recompiling function step in torch/optim/adam.py")
        assert "1 more failed to compile" in capture.log.summary

    def test_fullgraph_fails_at_the_break_that_every_optimizer_makes(self) -> None:
        step = compiled(torch.optim.Adam(parameters()), fullgraph=True)
        with pytest.raises(torch._dynamo.exc.Unsupported), capture_recompiles() as capture:
            step()
        assert capture.log.not_compiled == "Compiling failed: Unsupported: Call to `torch._dynamo.graph_break()`."

    def test_no_compiler_is_one_clear_sentence(self, tmp_path: Path) -> None:
        code = """
import json, torch, test_recompiles as t
from optimbench import capture_recompiles
told = []
for suppressed in (False, True):
    with torch._dynamo.config.patch(suppress_errors=suppressed):
        optimizer = torch.optim.Adam(t.parameters())
        try:
            with capture_recompiles() as capture:
                capture.watch(t.compiled(optimizer, "inductor"))()
        except Exception as error:
            assert not suppressed, error
        t.assert_tells_nothing_of_the_machine(capture.log)
        told.append([capture.log.summary, capture.log.compilations[0].failure])
print(json.dumps(told))
"""
        alone = run_alone(code, CXX=str(tmp_path / "none"), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
        (summary, failure), (suppressed_summary, suppressed_failure) = json.loads(alone.stdout.splitlines()[-1])
        assert failure.startswith("torch.compile needs a C++ compiler")
        assert summary == f"Not compiled. Compiling failed: {failure}."
        assert suppressed_failure == f"fell back to eager: {failure}"
        assert "The step fell back to eager" in suppressed_summary


class TestTheBlock:
    def test_the_log_cannot_be_read_inside_it(self) -> None:
        with capture_recompiles() as capture, pytest.raises(CaptureError, match="after the with statement"):
            _ = capture.log
        assert capture.log.summary.startswith("Not compiled.")

    def test_an_exception_leaves_a_log_of_what_happened_before(self) -> None:
        step = compiled(torch.optim.Adam(parameters()))
        with pytest.raises(ZeroDivisionError), capture_recompiles() as capture:
            divide_by_zero(step() is None)
        assert counts(capture.log) == (1, 0)

    def test_nothing_watched_leaves_calls_open(self) -> None:
        with capture_recompiles() as capture:
            compiled(torch.optim.Adam(parameters()))()
        assert capture.log.calls is None
        assert capture.log.compilations[0].call is None

    def test_a_compile_outside_the_watched_step_belongs_to_no_call(self) -> None:
        double = torch.compile(lambda x: x * 2, backend="eager")
        with capture_recompiles() as capture:
            step = capture.watch(compiled(torch.optim.Adam(parameters())))
            double(torch.ones(2))
            step()
        assert [c.call for c in capture.log.compilations] == [None, 1]

    def test_the_watched_step_passes_arguments_and_results_on_and_outlives_the_block(self) -> None:
        with capture_recompiles() as capture:
            divide = capture.watch(divmod)
            assert divide(7, 2) == (3, 1)
        assert divide(9, 2) == (4, 1)
        assert capture.log.calls == 1

    def test_one_step_is_watched(self) -> None:
        with capture_recompiles() as capture:
            capture.watch(print)
            with pytest.raises(CaptureError, match="one step"):
                capture.watch(print)
        with capture_recompiles() as capture:
            pass
        with pytest.raises(CaptureError, match="inside its block"):
            capture.watch(print)

    def test_a_capture_inside_another_is_refused_and_harms_neither(self) -> None:
        step = compiled(torch.optim.Adam(parameters()))
        with capture_recompiles() as outer:
            step()
            with pytest.raises(CaptureError, match="open already"), capture_recompiles():
                pass
            step()
        assert counts(outer.log) == (1, 0)
        assert counts(captured(step)) == (1, 0)

    def test_a_capture_in_another_thread_is_refused_and_compiles_there_are_seen(self) -> None:
        raised: list[BaseException] = []

        def work() -> None:
            compiled(torch.optim.Adam(parameters()))()
            try:
                with capture_recompiles():
                    pass
            except CaptureError as error:
                raised.append(error)

        with capture_recompiles() as capture:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert len(raised) == 1
        assert counts(capture.log) == (1, 0)

    def test_cleared_metrics_are_no_empty_log(self) -> None:
        with capture_recompiles() as capture:
            compiled(torch.optim.Adam(parameters()))()
            dynamo_utils.clear_compilation_metrics()
        with pytest.raises(CaptureError, match="cleared"):
            _ = capture.log

    def test_a_torch_without_the_metrics_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(dynamo_utils, "set_compilation_metrics_limit")
        with pytest.raises(CaptureError, match="set_compilation_metrics_limit"), capture_recompiles():
            pass

    def test_graph_breaks_are_counted_as_torch_does(self) -> None:
        captured(compiled(torch.optim.Adam(parameters())))
        before = Counter(dynamo_utils.counters["graph_break"])
        log = captured(compiled(torch.optim.Adam(parameters())))
        after = Counter(dynamo_utils.counters["graph_break"])
        assert sum(broken.count for broken in log.graph_breaks) == (after - before).total() > 0
        assert any("torch._dynamo.graph_break()" in broken.reason for broken in log.graph_breaks)

    def test_the_example_in_the_documentation_runs(self) -> None:
        (example,) = [
            test
            for test in doctest.DocTestFinder().find(
                capture_recompiles, globs={"capture_recompiles": capture_recompiles}
            )
            if test.examples
        ]
        # The compiled function still refers to these globals.
        results = doctest.DocTestRunner().run(example, clear_globs=False)
        assert results.attempted > 3
        assert results.failed == 0


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("2/0: self.param_groups[0]['lr'] == 0.01  # for g in ...", "lr of param group 0 changed: compiled for 0.01"),
        (
            "2/0: ___as_tensor(self.param_groups[1]['lr']).item() == 0.004333333333333334  # (_dynamo/x.py:1 in f)",
            "lr of param group 1 changed: compiled for 0.004333",
        ),
        ("2/0: opt.param_groups[0]['betas'][1] == 0.99", "betas[1] of param group 0 changed: compiled for 0.99"),
        ("2/0: len(self.state) != 2", "length of the optimizer's state changed: compiled for 2"),
        ("0/0: not opt.state   # st = s.state[p]; st[0]", "the optimizer had no state yet"),
        (
            "0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4",
            "size of x in dimension 0 changed from 3 to 4",
        ),
        ("0/0: tensor 'x' rank mismatch. expected 1, actual 2", "number of dimensions of x changed from 1 to 2"),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", "dtype of x changed from Float to Double"),
        (
            "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            "requires_grad of x changed: compiled for 0",
        ),
        ("0/0: GLOBAL_STATE changed: grad_mode ", "a global setting of torch changed: grad_mode"),
        ("0/0: d is None", "d was None, and is not now"),
        (
            "0/2: ___check_type_id(d['a'], 140204677878272), type=<class 'float'>  # f (HINT: type float)",
            "the type of d['a'] changed: compiled for float",
        ),
        ("0/0: 2 <= x.size()[0]  # y", "2 <= x.size()[0]"),
        # As torch 2.11 and 2.13 print it.
        ("0/0: ___check_obj_id(opt, 140709728132112), type=Adam (", "opt is another Adam than the one compiled for"),
        (
            "0/0: ___check_obj_id(opt, 140709728132112), type=<class 'torch.optim.adam.Adam'>  # opt.step()",
            "opt is another Adam than the one compiled for",
        ),
        (
            "2/0: ___check_obj_id(self.param_groups[0]['params'][1], 140709501863968), type=Parameter containing:",
            "parameter 1 of param group 0 is another Parameter than the one compiled for",
        ),
        ('0/0: Duplicate tensors found: ["x", "y"]', 'Duplicate tensors found: ["x", "y"]'),
        ("Unable to find recompilation reasons", "Unable to find recompilation reasons"),
        (
            "2/0: self.param_groups[0]['lr'] == 0.01; len(self.state) != 2",
            "lr of param group 0 changed: compiled for 0.01",
        ),
        ("", ""),
    ],
)
def test_a_guard_in_words(reason: str, sentence: str) -> None:
    assert _guards.parse(reason).sentence == sentence


@pytest.mark.parametrize("kind", ["Adam (\nParameter Group 0\n    lr: 0.1\n)", "<class 'torch.optim.adam.Adam'>"])
def test_another_optimizer_is_known_by_its_type(kind: str) -> None:
    guard = _guards.parse(f"0/0: ___check_obj_id(opt, 140709728132112), type={kind}  # opt.step()")
    assert "torch.compiler.reset()" in guard.hint
    assert guard.text == f"___check_obj_id(opt), type={kind.split(' (', maxsplit=1)[0]}"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("in /a/b-c/site-packages/torch/optim/adam.py:213", "in torch/optim/adam.py:213"),
        ("file `/home/someone/my.py`, /tmp/x/y.py", "file `my.py`, y.py"),
        ("<function f at 0x7f552d7c6980> (id=0x7f83c9159a10)", "<function f>"),
        ("___check_obj_id(self, 140709728132112)", "___check_obj_id(self)"),
        ("https://docs.pytorch.org/docs/main.html", "https://docs.pytorch.org/docs/main.html"),
        ("a / b / c, 1/2/3, torch/optim/adam.py", "a / b / c, 1/2/3, torch/optim/adam.py"),
    ],
)
def test_paths_and_addresses_are_taken_out(text: str, cleaned: str) -> None:
    assert _guards.clean(text) == cleaned
