r"""
The original claims, checked
============================

What PyTorch's own recipe for compiling the optimizer says, claim by claim, against what this machine does.

**You will see**

* every claim, and the line of code that tests it;
* a verdict that the code reached, with its evidence;
* which claims depend on the machine, on the implementation or on the release of PyTorch.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# The claims
# ----------
# In the order of the original text and in our words; what claims several things has a letter for each. Claim 14 names
# what surrounds the recipe (benchmarking, logs, how :func:`torch.compile` works, fusion) and has nothing to test.
CLAIMS = {
    "1a": "a step changes every parameter",
    "1b": "an eager step is memory-bound",
    "1c": "a compiled step is memory-bound",
    "2a": "an eager step launches operations for each parameter",
    "2b": "compiling fuses them into fewer kernels",
    "3a": "PyTorch from 2.3 on and this device can compile the step",
    "3b": "where the device cannot, the script leaves with a message",
    "4a": "without gradients a step does nothing",
    "4b": "only the number of parameters matters",
    "5a": "fullgraph=False is the default and tolerates graph breaks",
    "5b": "fullgraph=True is an option",
    "6a": "Timer waits for the GPU",
    "6b": "blocked_autorange measures for a fifth of a second or more",
    "7a": "the first call is far slower than the next",
    "7b": "five warm-up calls are enough",
    "8": "opt.step itself is a fair baseline for a wrapped step",
    "9": "the gate stops where compiling did not help",
    "10": "the compiled step gains what the sample shows",
    "11": "a compiled step and a scheduler go together, with a tensor",
    "12a": "with a tensor lr no guard fails",
    "12b": "with a float lr each of 5 steps recompiles, foreach=True",
    "12c": "with a float lr each of 12 steps recompiles, foreach=True",
    "12d": "with a float lr each of 5 steps recompiles, foreach=False",
    "12e": "so does what else is no tensor: a weight decay, foreach=True",
    "13a": "set_logs(recompiles=True) shows recompiles",
    "13b": "TORCH_LOGS does the same from outside",
}

# %%
# A condition decides each: true, false, or ``None`` where this machine cannot tell.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told here"}
found = {}


def judge(number, condition, evidence):
    found[number] = (number, CLAIMS[number], VERDICTS[condition], evidence)
    print(f"{number} {VERDICTS[condition]}: {evidence}")


# %%
# The experiment
# --------------
# Ten layers without bias, one forward and one backward pass, :class:`~torch.optim.Adam`. In the tests of this page the
# layers are two and small.
n_layers, width = (2, 64) if quick else (10, 1024)


def make_opt(n_layers=n_layers, width=width, **options):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(n_layers)]
    model = torch.nn.Sequential(*layers).to(device)
    model(torch.rand(width, device=device)).sum().backward()
    return torch.optim.Adam(model.parameters(), **{"lr": 0.01, **options})


def parameters_of(opt):
    return opt.param_groups[0]["params"]


def n_changed_by_a_step(opt):
    before = [parameter.detach().clone() for parameter in parameters_of(opt)]
    opt.step()
    pairs = zip(parameters_of(opt), before, strict=True)
    return sum(not torch.equal(now, then) for now, then in pairs)


opt, eager_opt, idle_opt = make_opt(), make_opt(), make_opt()
idle_opt.zero_grad()
n_changed, n_idle = n_changed_by_a_step(eager_opt), n_changed_by_a_step(idle_opt)
judge("1a", n_changed == n_layers, f"{n_changed} of {n_layers} tensors changed")
judge("4a", n_idle == 0, f"{n_idle} of {n_layers} tensors changed")

# %%
# Compiling it
# ------------
# A function that calls ``opt.step()``, from an empty compile cache, and the five warm-up calls of the original.
# Inductor counts how many operations it fused into how many kernels.
import contextlib
import time

from torch._inductor import metrics
from torch._inductor.utils import fresh_cache


@torch.compile(fullgraph=False)
def compiled_step():
    opt.step()


def timed_call_s(step):
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


metrics.reset()
cache = contextlib.nullcontext() if quick else fresh_cache()
with cache, ob.capture_recompiles() as capture:
    watched = capture.watch(compiled_step)
    calls_s = [timed_call_s(watched) for _ in range(5)]
n_fused, n_kernels = metrics.ir_nodes_pre_fusion, metrics.generated_kernel_count
published_log = capture.log
published_log

# %%
# It has to do what the eager step does, or nothing else about it matters. Then what these calls say of the claims. The
# last lines are the original's own look at the device.
for _ in range(4):  # The fifth was taken above.
    eager_opt.step()
for compiled, eager in zip(parameters_of(opt), parameters_of(eager_opt), strict=True):
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)

n_compiles, last_call = published_log.n_compiles, published_log.compilations[-1].call
slower = calls_s[0] / max(calls_s[1:])
judge("3a", n_compiles > 0, f"torch {torch.__version__}, {n_compiles} compiled")
judge("7a", slower > 10, f"{slower:,.0f} times the slowest of the next four")
judge("7b", last_call < 5, f"the last compile was in call {last_call}")
try:
    capability = torch.cuda.get_device_capability()
    judge("3b", None, f"this device has capability {capability[0]}.{capability[1]}")
except (AssertionError, RuntimeError) as error:
    judge("3b", False, f"looking at the capability raises {type(error).__name__}")

# %%
# Operations and kernels
# ----------------------
# What an eager step launches, counted where PyTorch dispatches it, for all layers and for one.
from torch.utils._python_dispatch import TorchDispatchMode


class CountOperations(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += 1
        return func(*args, **(kwargs or {}))


def count_operations(opt):
    opt.step()  # Creates the state.
    with CountOperations() as count:
        opt.step()
    return count.n


n_all, n_one = count_operations(make_opt()), count_operations(make_opt(n_layers=1))
grows = n_all > n_one * n_layers / 2
judge("2a", grows, f"{n_one} for one tensor, {n_all} for {n_layers}")
judge("2b", 0 < n_kernels < n_fused, f"{n_fused} operations in {n_kernels} kernels")

# %%
# The whole graph
# ---------------
import inspect

default = inspect.signature(torch.compile).parameters["fullgraph"].default
n_breaks = sum(each.count for each in published_log.graph_breaks)
judge("5a", default is False and n_breaks > 0, f"{default}; {n_breaks} breaks above")
try:
    torch.compile(make_opt(1, 16).step, fullgraph=True, backend="eager")()
    judge("5b", True, "one graph")
except torch._dynamo.exc.Unsupported as error:
    judge("5b", False, f"raises: {str(error).splitlines()[0]}")

# %%
# The helper and the gate
# -----------------------
# The original's way to time, and its ``assert eager_runtime > compiled_runtime``. Here both are the same eager step, so
# a gate which stops where nothing is gained would stop every time.
from torch.utils import benchmark

small = make_opt(2, 64)
blocks = []


def benchmark_torch_function_in_microseconds(f):
    blocks.append(benchmark.Timer("f()", globals={"f": f}).blocked_autorange())
    return blocks[-1].mean * 1e6


n_gates, n_passed = 3 if quick else 8, 0
for _ in range(n_gates):
    eager_runtime = benchmark_torch_function_in_microseconds(small.step)
    compiled_runtime = benchmark_torch_function_in_microseconds(small.step)
    n_passed += eager_runtime > compiled_runtime
judge("9", n_passed == 0, f"a step passed it against itself {n_passed} of {n_gates}x")
least_s = min(sum(each.raw_times) for each in blocks)
judge("6b", least_s >= 0.2, f"{least_s:.3f} s at least in {len(blocks)} measurements")
if device.type == "cuda":
    done = torch.cuda.Event()
    for _ in range(50):
        opt.step()
    done.record()
    was_done = done.query()
    inspect.signature(benchmark.Timer).parameters["timer"].default()  # Its clock.
    evidence = f"done before it looks at the clock: {was_done}, after: {done.query()}"
    judge("6a", None if was_done else done.query(), evidence)
else:
    judge("6a", None, "a CPU has nothing to wait for")

# %%
# The comparison
# --------------
# With :func:`optimbench.compare`, because of claim 9. One eager step is called by a function, as the compiled one is.
wrapped_opt = make_opt()


def wrapped_step():
    wrapped_opt.step()


claims_comparison = ob.compare(
    {"eager": eager_opt.step, "eager, wrapped": wrapped_step, "compiled": watched},
    baseline="eager",
    min_run_time_s=0.1 if quick else 1.0,
    num_threads=1 if quick else None,
)
claims_comparison

# %%
# The sample in the original: published ``747.24 µs`` eager and published ``392.07 µs`` compiled, on a device that it
# does not name. We ask whether this ratio lies in our interval. "Memory-bound" we call a step where moving its bytes
# explains more than half of its time.
PUBLISHED_RATIO = 747.24 / 392.07
wall = claims_comparison.speedup("compiled").wall
wrapped = claims_comparison.speedup("eager, wrapped").wall
is_fair = not (wrapped.is_faster or wrapped.is_slower)
judge("8", is_fair, f"wrapped: {wrapped.verdict} {wrapped.interval}")
is_as_published = wall.low <= PUBLISHED_RATIO <= wall.high
if is_as_published and not wall.is_faster:
    is_as_published = None  # So wide an interval holds "no gain" too.
evidence = f"sample {PUBLISHED_RATIO:.2f}x, here {wall.verdict} {wall.interval}"
judge("10", is_as_published, evidence)
floor_s = ob.floor_s(opt, ob.copy_bandwidth(device))
for number, name in (("1b", "eager"), ("1c", "compiled")):
    share = floor_s / claims_comparison.row(name).median_s
    judge(number, share > 0.5, f"moving the bytes is {share:.2g} of its time")


# %%
# If only their number matters, then the same number of parameters in one tensor or in 300 takes the same time. We take
# one CPU thread, since several that wait for each other would cost more than such small tensors.
def make_pieces(*shapes):
    pieces = ob.Workload(name="pieces", description="", shapes=shapes)
    return torch.optim.Adam(ob.make_parameters(pieces, device=device), lr=0.01)


pieces_comparison = ob.compare(
    {
        "one tensor": make_pieces((300, 1024)).step,
        "300 tensors": make_pieces(*[(1024,)] * 300).step,
    },
    baseline="one tensor",
    min_run_time_s=0.1 if quick else 0.5,
    num_threads=1,
)
pieces = pieces_comparison.speedup("300 tensors").wall
is_alike = not (pieces.is_faster or pieces.is_slower)
judge("4b", is_alike, f"300 tensors against one: {pieces.verdict} {pieces.interval}")
pieces_comparison

# %%
# A learning rate that changes
# ----------------------------
# Five compiled steps with a tensor and a ``LinearLR``, beside five eager ones with a float.
from torch.optim.lr_scheduler import LinearLR


def make_scheduled(lr, calls=5, **options):
    opt = make_opt(2, 16, lr=lr, **options)
    sched = LinearLR(opt, total_iters=calls)

    def step():
        opt.step()
        sched.step()

    return opt, step


def trace_of(opt, step, calls):
    trace = []
    for _ in range(calls):
        step()
        trace.append(float(opt.param_groups[0]["lr"]))
    return trace


def log_of(opt, step, calls, **options):
    with ob.capture_recompiles() as capture:
        watched = capture.watch(torch.compile(step, **options))
        trace = trace_of(opt, watched, calls)
    return capture.log, trace


on_gpu = {"capturable": True} if device.type == "cuda" else {}
with_tensor, step = make_scheduled(torch.tensor(0.01, device=device), **on_gpu)
with_float, eager_step = make_scheduled(0.01)
tensor_log, trace = log_of(with_tensor, step, 5)
torch.testing.assert_close(trace, trace_of(with_float, eager_step, 5))
torch.testing.assert_close(parameters_of(with_tensor), parameters_of(with_float))
n_compiles, n_again = tensor_log.n_compiles, tensor_log.n_recompiles
judge("11", n_compiles > 0, "as eager: lr " + ", ".join(f"{lr:.4f}" for lr in trace))
judge("12a", n_compiles > 0 and n_again == 0, f"{n_compiles} compiled, {n_again} again")

# %%
# With a float, in both of Adam's implementations: ``foreach=True`` is the default on a GPU, the other on a CPU. The
# backend ``"aot_eager"`` compiles as often as Inductor and generates no code.
for number, calls, foreach in (("12b", 5, True), ("12c", 12, True), ("12d", 5, False)):
    with_float, step = make_scheduled(0.01, calls, foreach=foreach)
    _log, _ = log_of(with_float, step, calls, backend="aot_eager")
    eager = f", eager since step {_log.eager_since_call}" if _log.limit_hit else ""
    evidence = f"recompiles in {calls} steps: {_log.n_recompiles}{eager}"
    judge(number, _log.n_recompiles == calls - 1, evidence)

decayed = make_opt(2, 16, foreach=True)


def step_with_new_decay():
    decayed.step()
    decayed.param_groups[0]["weight_decay"] += 0.1


_log, _ = log_of(decayed, step_with_new_decay, 5, backend="aot_eager")
judge("12e", _log.n_recompiles == 4, f"recompiles in 5 steps: {_log.n_recompiles}")

# %%
# The log
# -------
# The same program twice: here after :func:`torch._logging.set_logs`, and in a second Python under ``TORCH_LOGS``.
import io
import subprocess
import sys

assert "TORCH_LOGS" not in os.environ, "set_logs does nothing where TORCH_LOGS is set"
PROGRAM = """
import torch
weight = torch.nn.Parameter(torch.rand(4, 4))
weight.grad = torch.rand(4, 4)
sgd = torch.optim.SGD([weight], lr=0.01, foreach=True)
compiled_sgd = torch.compile(sgd.step, backend="eager")
for lr in (0.01, 0.009, 0.0081):
    sgd.param_groups[0]["lr"] = lr
    compiled_sgd()
"""
torch._dynamo.reset()
inside = io.StringIO()
with contextlib.redirect_stderr(inside):
    torch._logging.set_logs(recompiles=True)
    exec(PROGRAM, {})
torch._logging.set_logs()  # Back to the defaults.
command = [sys.executable, "-c", PROGRAM]
variables = {**os.environ, "TORCH_LOGS": "recompiles"}
outside = subprocess.run(
    command, env=variables, capture_output=True, text=True, check=True
)
logs = (inside.getvalue(), outside.stderr)
n_inside, n_outside = (log.count("Recompiling function") for log in logs)
judge("13a", n_inside > 0, f"recompiles shown: {n_inside}")
judge("13b", n_outside == n_inside, f"recompiles shown: {n_outside}")

# %%
# All of them
# -----------
assert found.keys() == CLAIMS.keys(), "a claim was not judged"
claims = ob.Table(
    name="The claims and what became of them",
    columns=("number", "claim", "verdict", "evidence"),
    cells=tuple(found[number] for number in CLAIMS),
)
claims

# %%
# What this does not show
# -----------------------
# * What holds on this machine need not hold on yours, least of all claims 1, 2, 4 and 10: the tabs show other machines.
# * Each claim is judged by one small test. Where a verdict surprises, the page about it says more.
