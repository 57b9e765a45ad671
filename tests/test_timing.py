import contextlib
import itertools
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

import optimbench as ob
from fake_clock import FakeClock
from optimbench import _kernels
from optimbench._machine_load import LoadMeter
from optimbench.errors import CompilerNotFoundError, InvalidArgumentError, NoGradientError

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def make_optimizer(**options: object) -> torch.optim.Adam:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(4, 4)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.randn(4, 4)
    return torch.optim.Adam(parameters, **options)  # type: ignore[arg-type]


def measure_fake(clock: FakeClock, duration_s: float, **options: float) -> ob.Measurement:
    return ob.measure(clock.step(duration_s, **options), name="fake", device="cpu", clock=clock)


def test_the_median_is_the_duration_of_a_step() -> None:
    measured = measure_fake(FakeClock(), 0.003)
    assert measured.median_s == pytest.approx(0.003)
    assert measured.iqr_s == pytest.approx(0, abs=1e-12)
    assert measured.n_blocks == 20


def test_the_first_call_is_told_apart_from_the_rest() -> None:
    measured = measure_fake(FakeClock(), 0.01, first_s=30.0)
    assert measured.first_call_s == pytest.approx(30.01)
    assert measured.warm_up_s == pytest.approx(30.05)
    assert measured.median_s == pytest.approx(0.01)


def test_a_turn_begins_after_the_first_calls_and_ends_after_the_last() -> None:
    clock = FakeClock()
    seen_s = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        seen_s.append(clock.now_s)
        yield
        seen_s.append(clock.now_s)

    steps = {name: clock.step(0.001, first_s=10.0) for name in ("a", "b")}
    ob.compare(steps, baseline="a", device="cpu", clock=clock, turn=turn())
    # Five calls of each come before, nothing comes after.
    assert seen_s == [pytest.approx(20.01), clock.now_s]
    assert seen_s[1] > seen_s[0] + 1


@pytest.mark.parametrize("duration_s", [1e-6, 1e-3, 0.02, 0.05, 0.1])
def test_default_settings_take_at_most_three_seconds_a_step(duration_s: float) -> None:
    clock = FakeClock()
    measure_fake(clock, duration_s)
    assert 1.5 < clock.now_s < 3.0


def test_a_slow_step_still_gets_ten_blocks_of_one_call() -> None:
    clock = FakeClock()
    measured = measure_fake(clock, 1.0)
    assert (measured.n_blocks, measured.calls_per_block, measured.median_s) == (10, 1, 1.0)
    # Five first calls, four to find out how long they take, and no more than the ten that are timed.
    assert clock.now_s == 19


def test_on_a_cpu_host_and_kernel_fields_are_none_and_not_zero() -> None:
    measured = measure_fake(FakeClock(), 0.01)
    unknown = (measured.host_time_s, measured.kernel_time_s, measured.kernel_count, measured.peak_extra_bytes)
    assert unknown == (None, None, None, None)


def test_the_number_of_threads_is_torchs_own_and_part_of_the_result() -> None:
    seen = set()
    measured = ob.measure(lambda: seen.add(torch.get_num_threads()), name="step", min_run_time_s=0.01)
    assert measured.num_threads == torch.get_num_threads()
    assert seen == {torch.get_num_threads()}


def test_a_given_number_of_threads_holds_from_the_first_call_and_is_restored() -> None:
    before = torch.get_num_threads()
    seen = set()
    measured = ob.measure(lambda: seen.add(torch.get_num_threads()), name="step", min_run_time_s=0.01, num_threads=1)
    assert (measured.num_threads, seen, torch.get_num_threads()) == (1, {1}, before)


def test_all_steps_of_a_comparison_have_the_same_rounds() -> None:
    clock = FakeClock()
    compared = ob.compare(
        {"slow": clock.step(0.2), "fast": clock.step(0.0001)}, baseline="slow", device="cpu", clock=clock
    )
    assert [row.n_blocks for row in compared.rows] == [10, 10]
    assert compared.speedup("fast").wall.value == pytest.approx(2000)


def test_the_order_within_a_round_changes() -> None:
    order: list[str] = []
    clock = FakeClock()

    def step_called(name: str) -> object:
        def step() -> None:
            clock.now_s += 0.04
            if not order or order[-1] != name:
                order.append(name)

        return step

    steps = {name: step_called(name) for name in "abc"}
    ob.compare(steps, baseline="a", device="cpu", clock=clock)  # type: ignore[arg-type]
    rounds = ["".join(order[i : i + 3]) for i in range(6, len(order) - 2, 3)]
    assert len(set(rounds)) > 1


def verdicts(duration_s: float, trials: int) -> list[bool]:
    """Whether each of several comparisons of 20 ms against `duration_s` was called different."""
    told = []
    for seed in range(trials):
        clock = FakeClock(seed)
        noise = {"noise": 0.03, "drift": 0.10, "outliers": 0.02}
        steps = {"a": clock.noisy_step(0.020, **noise), "b": clock.noisy_step(duration_s, **noise)}
        compared = ob.compare(steps, baseline="a", seed=seed, device="cpu", clock=clock)
        told.append(compared.speedup("b").wall.verdict != "no clear difference")
    return told


def test_a_step_against_itself_is_no_clear_difference_in_95_of_100_comparisons() -> None:
    assert sum(verdicts(0.020, 100)) <= 5


def test_a_true_difference_of_ten_percent_is_found_in_95_of_100_comparisons() -> None:
    assert sum(verdicts(0.022, 100)) >= 95


def test_the_same_function_twice_is_no_clear_difference() -> None:
    clock = FakeClock()
    step = clock.noisy_step(0.01, noise=0.02, drift=0.1, outliers=0.02)
    compared = ob.compare({"a": step, "b": step}, baseline="a", device="cpu", clock=clock)
    assert compared.speedup("b").wall.verdict == "no clear difference"
    assert compared.break_even_steps("b") is None


def test_a_slower_step_is_called_slower() -> None:
    clock = FakeClock()
    compared = ob.compare({"a": clock.step(0.01), "b": clock.step(0.02)}, baseline="a", device="cpu", clock=clock)
    assert compared.speedup("b").wall.verdict == "2.00x slower"


def test_break_even_is_the_extra_warm_up_over_the_gain() -> None:
    clock = FakeClock()
    steps = {"eager": clock.step(0.02), "compiled": clock.step(0.01, first_s=5.0)}
    compared = ob.compare(steps, baseline="eager", device="cpu", clock=clock)
    assert compared.break_even_steps("compiled") == pytest.approx(500)


def test_noise_is_flagged_with_its_share() -> None:
    clock = FakeClock()
    step = clock.noisy_step(0.02, noise=0.5, drift=0.0, outliers=0.0)
    noisy = ob.measure(step, name="noisy", device="cpu", clock=clock)
    quiet = measure_fake(FakeClock(), 0.02)
    assert any("noisy: the IQR of" in warning and "% of the median" in warning for warning in noisy.warnings)
    assert not any("noisy" in warning for warning in quiet.warnings)


def test_a_drifting_clock_is_flagged() -> None:
    clock = FakeClock()

    def step() -> None:
        clock.now_s += 0.01 * (1 + clock.now_s)

    assert "drifting" in " ".join(ob.measure(step, name="drifting", device="cpu", clock=clock).warnings)


def test_a_step_that_compiles_while_it_is_timed_is_flagged() -> None:
    torch._dynamo.reset()
    sizes = itertools.count(2)
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    # The limit is raised, or the warm-up would use it up.
    with torch._dynamo.config.patch(recompile_limit=50, accumulated_recompile_limit=50):
        measured = ob.measure(lambda: compiled(torch.ones(next(sizes))), name="recompiles", min_run_time_s=0.01)
    torch._dynamo.reset()
    assert any("while it was timed" in warning for warning in measured.warnings)


def test_a_parameter_that_is_no_longer_finite_is_flagged() -> None:
    parameters = make_optimizer().param_groups[0]["params"]
    optimizer = torch.optim.SGD(parameters, lr=3e38)
    measured = ob.measure(optimizer.step, name="diverges", min_run_time_s=0.01)
    assert any("no longer finite" in warning for warning in measured.warnings)


def test_an_eager_baseline_with_a_tensor_lr_is_flagged() -> None:
    slow = ob.measure(make_optimizer(lr=torch.tensor(0.01)).step, name="tensor lr", min_run_time_s=0.01)
    fair = ob.measure(make_optimizer(lr=0.01).step, name="float lr", min_run_time_s=0.01)
    assert any("falls back to one parameter after the other" in warning for warning in slow.warnings)
    assert not any("falls back" in warning for warning in fair.warnings)


def test_what_a_compiler_cannot_do_is_a_row_and_the_eager_row_stays() -> None:
    # A complex parameter under foreach: eager SGD can, a compiler may or may not. Either way the rest goes on.
    def sgd() -> torch.optim.SGD:
        parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64))
        parameter.grad = torch.ones_like(parameter)
        return torch.optim.SGD([parameter], lr=0.1, foreach=True)

    eager, other, last = sgd(), sgd(), sgd()
    steps = {
        "eager": eager.step,
        "compiled": torch.compile(other.step),
        "refuses": torch.compile(last.step, fullgraph=True),
    }
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*complex.*")
        compared = ob.compare(steps, baseline="eager", min_run_time_s=0.01)
    torch._dynamo.reset()
    failed = {step.name: step.reason for step in compared.not_measured}
    assert compared.rows[0].name == "eager"
    assert {row.name for row in compared.rows} | set(failed) == set(steps)
    assert failed["refuses"].startswith("Unsupported: ")


@needs_cuda
def test_parameters_on_two_devices_leave_the_eager_row() -> None:
    def adam() -> torch.optim.Adam:
        parameters = [torch.nn.Parameter(torch.ones(4, device=device)) for device in ("cpu", "cuda")]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        return torch.optim.Adam(parameters, lr=0.1)

    eager, other = adam(), adam()
    steps = {"eager": eager.step, "compiled": torch.compile(other.step)}
    compared = ob.compare(steps, baseline="eager", min_run_time_s=0.01)
    assert compared.rows[0].name == "eager"
    assert [row.name for row in compared.rows[1:]] + [step.name for step in compared.not_measured] == ["compiled"]


def test_ten_thousand_steps_leave_finite_parameters() -> None:
    optimizer = make_optimizer(lr=0.01, foreach=True)
    ob.measure(optimizer.step, name="Adam", min_run_time_s=1.0)
    assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] > 1000
    assert all(torch.isfinite(parameter).all() for parameter in optimizer.param_groups[0]["params"])


def test_a_step_that_raises_is_a_row_without_a_time() -> None:
    def broken() -> None:
        raise RuntimeError("first line\nsecond line")

    clock = FakeClock()
    compared = ob.compare({"a": clock.step(0.01), "broken": broken}, baseline="a", device="cpu", clock=clock)
    assert [row.name for row in compared.rows] == ["a"]
    assert compared.not_measured[0].reason == "RuntimeError: first line"
    assert "broken" in str(compared)


def test_a_step_that_raises_while_it_is_timed_leaves_the_other_rows() -> None:
    clock = FakeClock()
    takes_time = clock.step(0.01)
    calls = itertools.count()

    def broken() -> None:
        takes_time()
        if next(calls) > 20:
            raise MemoryError("no memory left")

    steps = {"a": clock.step(0.01), "broken": broken, "b": clock.step(0.02)}
    compared = ob.compare(steps, baseline="a", device="cpu", clock=clock)
    assert [(row.name, row.n_blocks) for row in compared.rows] == [("a", 20), ("b", 20)]
    assert compared.not_measured[0].reason == "MemoryError: no memory left"
    with pytest.raises(MemoryError):
        ob.measure(broken, name="broken", device="cpu", clock=clock)


def test_a_baseline_that_raises_ends_the_comparison() -> None:
    with pytest.raises(ZeroDivisionError):
        ob.compare({"a": lambda: 1 / 0, "b": lambda: None}, baseline="a")


def test_no_time_is_shown_for_a_step_that_does_something_else() -> None:
    clock = FakeClock()
    compared = ob.compare(
        {"a": clock.step(0.01), "b": clock.step(0.001)},
        baseline="a",
        check=lambda name: f"{name} keeps the first learning rate",
        device="cpu",
        clock=clock,
    )
    assert [row.name for row in compared.rows] == ["a"]
    assert compared.not_measured[0].outcome == "different result"


def test_a_busy_cpu_is_flagged_with_its_share() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        measured = ob.measure(lambda: time.sleep(0.01), name="step", device="cpu", min_run_time_s=0.5)
    finally:
        for process in others:
            process.kill()
            process.wait()
    assert any("other processes used" in warning for warning in measured.warnings)


def test_the_load_of_this_process_is_not_taken_for_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"busy": 100.0, "own": 5.0, "now": 0.0}
    monkeypatch.setattr("optimbench._machine_load._busy_s", lambda: seconds["busy"])
    monkeypatch.setattr("time.monotonic", lambda: seconds["now"])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meter = LoadMeter(own_time=lambda: seconds["own"])
    seconds.update(busy=107.0, own=11.0, now=5.0)
    # Seven seconds of work on two processors in five, six of them ours: one of ten.
    assert meter.others_share() == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["", "  ", None])
def test_an_empty_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="name is"):
        ob.measure(lambda: None, name=name)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="step 'x' is of type int"):
        ob.measure(3, name="x")  # type: ignore[arg-type]


async def _asynchronous() -> None: ...


@pytest.mark.parametrize("step", [_asynchronous, lambda: (yield)])
def test_a_step_that_runs_nothing_when_it_is_called_is_refused(step: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError, match="step 'lazy' is a generator or async"):
        ob.measure(step, name="lazy")


@pytest.mark.parametrize("device", ["mps", "meta", "gpu", None])
def test_only_the_cpu_and_cuda_devices_are_measured(device: str | None) -> None:
    for use in (
        lambda: ob.copy_bandwidth(device),  # type: ignore[arg-type]
        lambda: ob.make_parameters("many_small", device=device),  # type: ignore[arg-type]
        lambda: ob.measure(lambda: None, name="step", device=device or "xpu"),
    ):
        with pytest.raises(InvalidArgumentError, match=r"device is '\w+' \(expected a CUDA device or the CPU\)"):
            use()


def test_a_cuda_device_that_is_not_there_is_refused() -> None:
    for use in (
        lambda: ob.copy_bandwidth("cuda:99"),
        lambda: ob.make_parameters("many_small", device="cuda:99"),
        lambda: ob.measure(lambda: None, name="step", device="cuda:99"),
    ):
        with pytest.raises(ob.DeviceError, match="there is no CUDA device cuda:99: "):
            use()
    with pytest.raises(ob.DeviceError, match="there is no CUDA device cuda:256: "):
        ob.copy_bandwidth("cuda:256")


@pytest.mark.parametrize("said", ["", False, True])
def test_a_check_says_none_or_what_differs(said: object) -> None:
    steps = {"a": lambda: None, "b": lambda: None}
    with pytest.raises(InvalidArgumentError, match=f"check said {said!r} of 'b'"):
        ob.compare(steps, baseline="a", check=lambda _: said)  # type: ignore[arg-type, return-value]


def test_what_torch_refuses_of_a_tensor_lr_is_passed_on_with_what_to_change() -> None:
    refused = make_optimizer(lr=torch.tensor(0.1))
    refused.param_groups[0]["foreach"] = True
    with pytest.raises(RuntimeError, match="lr as a Tensor is not supported") as caught:
        ob.measure(refused.step, name="refused")
    assert "give lr as a float" in caught.value.__notes__[0]
    steps = {"eager": make_optimizer().step, "refused": refused.step}
    (row,) = ob.compare(steps, baseline="eager", min_run_time_s=0.01).not_measured
    assert row.reason.startswith("RuntimeError: lr as a Tensor is not supported")
    assert "give lr as a float" in row.reason


@pytest.mark.parametrize("seconds", [-1.0, 0.0, math.nan, math.inf])
def test_a_run_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="min_run_time_s is"):
        ob.measure(lambda: None, name="x", min_run_time_s=seconds)


def test_steps_without_the_baseline_or_without_steps_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="baseline 'b' is not among"):
        ob.compare({"a": lambda: None}, baseline="b")
    with pytest.raises(InvalidArgumentError, match="steps is"):
        ob.compare({}, baseline="a")
    with pytest.raises(InvalidArgumentError, match="steps is"):
        ob.compare([("a", lambda: None), ("a", lambda: None)], baseline="a")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="num_threads is 0"):
        ob.compare({"a": lambda: None}, baseline="a", num_threads=0)


def test_a_step_without_gradients_is_refused_however_it_is_wrapped() -> None:
    optimizer = make_optimizer(lr=0.01)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = None

    def wrapped() -> None:
        optimizer.step()

    for step in (optimizer.step, wrapped, torch.compile(wrapped), torch.compile(optimizer.step), lambda: wrapped()):  # noqa: PLW0108
        with pytest.raises(NoGradientError, match="no parameter of its Adam has a gradient"):
            ob.measure(step, name="Adam")


def test_without_a_compiler_there_is_one_clear_sentence_and_the_eager_row(tmp_path: object) -> None:
    # In a process of its own: Inductor remembers the compiler it has found.
    script = """
import torch, optimbench as ob
parameters = [torch.nn.Parameter(torch.ones(3))]
parameters[0].grad = torch.ones(3)
eager, other = torch.optim.SGD(parameters, lr=0.1), torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
compiled = torch.compile(other.step)
compared = ob.compare({"eager": eager.step, "compiled": compiled}, baseline="eager", min_run_time_s=0.01)
print([row.name for row in compared.rows], compared.not_measured[0].reason)
try:
    ob.measure(compiled, name="compiled")
except ob.CompilerNotFoundError as error:
    print("raised", error)
"""
    environment = {"PATH": "/nowhere", "CXX": "/nowhere/g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['eager'] torch.compile needs a C++ compiler on a CPU and finds none"), done.stdout
    assert "raised torch.compile needs a C++ compiler" in done.stdout
    assert issubclass(CompilerNotFoundError, RuntimeError)


def test_with_a_cold_cache_only_the_steps_own_time_counts() -> None:
    clock = FakeClock()
    measured = ob.measure(clock.step(0.01), name="cold", device="cpu", cold_cache=True, clock=clock)
    assert measured.cold_cache
    assert measured.median_s == pytest.approx(0.01)
    assert "Cold cache." in str(measured)


def test_the_wall_time_on_a_cpu_is_that_of_a_plain_loop() -> None:
    def step() -> None:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass

    # Short blocks, and the fastest of each: a busy test machine interrupts some of them, whoever takes the time.
    measured = ob.measure(step, name="loop", device="cpu", min_run_time_s=0.2)
    calls_s = []
    for _ in range(100):
        start = time.perf_counter()
        step()
        calls_s.append(time.perf_counter() - start)
    assert min(measured.block_times_s) == pytest.approx(min(calls_s), rel=0.03)


@needs_cuda
def test_kernel_times_are_those_of_the_trace(tmp_path: object) -> None:
    import json

    parameters = [torch.nn.Parameter(torch.randn(1024, 1024, device="cuda")) for _ in range(10)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    optimizer.step()
    kernel_s, kernels = _kernels.kernel_times(optimizer.step, 20)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiled:
        for _ in range(20):
            optimizer.step()
        torch.cuda.synchronize()
    trace = f"{tmp_path}/trace.json"
    profiled.export_chrome_trace(trace)
    with open(trace) as file:  # noqa: PTH123
        events = json.load(file)["traceEvents"]
    ran = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert kernels == len(ran) / 20
    assert kernel_s == pytest.approx(sum(event["dur"] for event in ran) / 1e6 / 20, rel=0.02)


@needs_cuda
@pytest.mark.parametrize("before", [None, "0"])
def test_kernels_are_counted_again_after_the_profiler_was_detached(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    else:
        monkeypatch.setenv("TEARDOWN_CUPTI", before)
    parameter = torch.nn.Parameter(torch.randn(2**20, device="cuda"))
    parameter.grad = torch.randn_like(parameter)
    step = ob.build_step(torch.optim.Adam([parameter], lr=0.01), "fused_cudagraph")
    for _ in range(5):
        step()
    counts = []
    for _ in range(3):
        counts += [_kernels.kernel_times(step, 10)[1] for _ in range(2)]
        _kernels.detach_profiler()
        step()
    assert counts == [2.0] * 6
    assert os.environ.get("TEARDOWN_CUPTI") == before


@needs_cuda
def test_the_wall_time_of_a_graph_replay_is_that_of_events_around_replays() -> None:
    parameter = torch.nn.Parameter(torch.randn(2**24, device="cuda"))
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam([parameter], lr=torch.tensor(0.01, device="cuda"), fused=True, capturable=True)
    optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    measured = ob.measure(graph.replay, name="replay", device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    per_call_s = []
    for _ in range(20):
        start.record()
        for _ in range(200):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        per_call_s.append(start.elapsed_time(end) / 1e3 / 200)
    assert measured.median_s == pytest.approx(sorted(per_call_s)[10], rel=0.02)


@needs_cuda
def test_host_and_kernel_time_are_measured_apart_on_a_gpu() -> None:
    parameter = torch.nn.Parameter(torch.randn(2**26, device="cuda"))
    parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam([parameter], lr=0.01, fused=True)
    measured = ob.measure(optimizer.step, name="fused", min_run_time_s=0.5)
    assert measured.host_time_s is not None
    assert measured.kernel_time_s is not None
    # One large tensor: the host is done long before the kernel, whose time is then the wall time.
    assert measured.host_time_s < measured.kernel_time_s
    assert measured.median_s == pytest.approx(measured.kernel_time_s, rel=0.05)
    assert measured.kernel_count is not None
    assert measured.kernel_count >= 1


@needs_cuda
def test_a_long_step_is_launched_once_a_block_for_its_host_time() -> None:
    (parameter,) = ob.make_parameters([(4,)], device="cuda")
    optimizer, calls = torch.optim.Adam([parameter]), itertools.count(1)

    def long() -> int:
        time.sleep(0.06)
        optimizer.step()
        return next(calls)

    measured = ob.measure(long, name="long", min_run_time_s=0.1)
    assert (measured.n_blocks, measured.calls_per_block) == (10, 1)
    # Five more a block would be 50, besides those to warm up, to choose the block's size and to profile.
    assert next(calls) < 50


def test_only_an_optimizers_whole_step_is_known_to_move_all_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the driver would say of a GPU whose cache holds nothing of this.
    monkeypatch.setattr("optimbench.limits._cache_bytes", lambda _: 1)
    parameter = torch.nn.Parameter(torch.ones(1000))
    parameter.grad = torch.ones(1000)
    optimizer = torch.optim.Adam([parameter])
    built = ob.build_step(ob.copy_optimizer(optimizer), "foreach")
    steps: dict[str, Callable[[], object]] = {
        "own": optimizer.step,
        "built": built,
        "other method": optimizer.state_dict,
        "wrapped": lambda: (optimizer.step(), None)[1],
    }
    measured = {name: ob.measure(step, name=name, min_run_time_s=0.01).least_bytes for name, step in steps.items()}
    assert measured == {"own": 28_000, "built": 28_000, "other method": None, "wrapped": None}


@needs_cuda
def test_a_cold_call_is_timed_without_what_the_host_needs_to_launch_it() -> None:
    parameters = ob.make_parameters([(1024,)] * 100, device="cuda")
    step = torch.optim.Adam(parameters, lr=0.01, foreach=False).step
    cold = ob.measure(step, name="for-loop", min_run_time_s=0.3, cold_cache=True)
    assert cold.host_time_s is not None
    assert cold.kernel_time_s is not None
    # Some 1 400 launches take the host several times as long as the kernels, cold or not, take the device.
    assert cold.kernel_time_s < cold.median_s < 0.6 * cold.host_time_s


@needs_cuda
def test_a_cold_call_counts_only_if_it_was_launched_in_time() -> None:
    (parameter,) = ob.make_parameters([(2**20,)], device="cuda")
    fused, calls = torch.optim.Adam([parameter], fused=True), itertools.count()

    def slower_to_launch_later() -> None:
        if next(calls) > 20:  # When the first estimate of it has long been made.
            time.sleep(0.002)
        fused.step()

    cold = ob.measure(slower_to_launch_later, name="slower", min_run_time_s=0.3, device="cuda", cold_cache=True)
    assert cold.host_time_s is not None
    assert cold.host_time_s > 0.002
    assert cold.median_s < 0.001
