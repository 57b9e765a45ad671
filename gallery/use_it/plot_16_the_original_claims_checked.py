r"""
The original claims, checked
============================

What PyTorch's own recipe for compiling the optimizer says, claim by claim, against what this machine does.

**You will see**

* every claim, the line of code that tests it, and the verdict;
* which claims depend on the machine, on the implementation or on the release of PyTorch.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# The claims
# ----------
# In the order of the original text and in our words, with letters where one claims several things. The next page has
# those about schedulers, from 11 on.
CLAIMS = {
    "1": "a step is memory-bound, eager or compiled",
    "2a": "an eager step launches operations for each parameter",
    "2b": "compiling fuses them into fewer kernels",
    "3a": "PyTorch from 2.3 on and this device can compile the step",
    "3b": "where the device cannot, the script leaves with a message",
    "4a": "without gradients a step does nothing",
    "4b": "only the number of parameters matters, not that of tensors",
    "5a": "by default, fullgraph=False, graph breaks are tolerated",
    "5b": "fullgraph=True is an option",
    "6a": "Timer waits for the GPU",
    "6b": "blocked_autorange measures for a fifth of a second or more",
    "7": "the first call is far slower, and five warm-up calls are enough",
    "8": "opt.step itself is a fair baseline for a wrapped step",
    "9": "the gate stops where compiling did not help",
    "10": "the compiled step gains what the sample shows",
}

# %%
# A condition decides each; ``None`` is for what this machine cannot tell. Ten tensors and their gradients are all that
# :class:`~torch.optim.Adam` sees of the original's ten layers. The tests of this page take two small ones.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ
n_layers, width = (2, 64) if quick else (10, 1024)
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told here"}
judged = {}


def judge(number, condition, evidence):
    judged[number] = (number, CLAIMS[number], VERDICTS[condition], evidence)


def make_adam(*shapes):
    shapes = shapes or [(width, width)] * n_layers
    return torch.optim.Adam(ob.make_parameters(shapes, device=device), lr=0.01)


# %%
# The recipe
# ----------
# A compiled function that calls ``opt.step()``, from an empty compile cache, and five warm-up calls. It has to do what
# the eager step does, or nothing else about it matters.
from torch._inductor import metrics
from torch._inductor.utils import fresh_cache
from torch.utils import benchmark

opt, eager_opt = make_adam(), make_adam()


@torch.compile
def compiled_step():
    opt.step()


metrics.reset()
with fresh_cache(), ob.capture_recompiles() as capture:
    compiled_step = capture.watch(compiled_step)
    for _ in range(5):
        compiled_step()
        eager_opt.step()
torch.testing.assert_close(*[o.param_groups[0]["params"] for o in (opt, eager_opt)])

_log, n_kernels = capture.log, metrics.generated_kernel_count
n_compiles, last_call = _log.n_compiles, _log.compilations[-1].call
n_breaks = sum(each.count for each in _log.graph_breaks)
judge("3a", n_compiles > 0, f"torch {torch.__version__}: {n_compiles} compiled")
judge("5a", n_compiles > 0 and n_breaks > 0, f"compiled, with {n_breaks} breaks")
one_graph = torch.compile(make_adam().step, fullgraph=True, backend="eager")
# The original begins with the capability.
for number, attempt in ("3b", torch.cuda.get_device_capability), ("5b", one_graph):
    try:
        attempt()
        judge(number, True if number == "5b" else None, "nothing is raised here")
    except (AssertionError, RuntimeError) as error:
        judge(number, False, f"{type(error).__name__}: {str(error).splitlines()[0]}")

# %%
# Eager operations are counted where PyTorch dispatches them, kernels where Inductor generates them.
one_opt, idle_opt = make_adam((width, width)), make_adam()
one_opt.step()  # Makes its state.
idle_opt.zero_grad()
counted = [ob.count_operations(each.step) for each in (eager_opt, one_opt, idle_opt)]
n_all, n_one, n_idle = (each.count for each in counted)
judge("2a", n_all > n_one * n_layers / 2, f"{n_one} for one, {n_all} for {n_layers}")
judge("4a", n_idle == 0, f"{n_idle} operations")

# %%
# The original's way to time, and its ``assert eager_runtime > compiled_runtime``. Here both are the same eager step, so
# a gate which stops where nothing is gained would stop every time.
timer = benchmark.Timer("step()", globals={"step": make_adam((64, 64)).step})
blocks = [timer.blocked_autorange() for _ in range(4 if quick else 16)]
least_s = min(sum(each.raw_times) for each in blocks)
passed = [a.mean > b.mean for a, b in zip(blocks[::2], blocks[1::2], strict=True)]
judge("6b", least_s >= 0.2, f"{least_s:.3f} s at least in {len(blocks)} measurements")
judge("9", not any(passed), f"a step beat itself {sum(passed)} of {len(passed)} times")
judge("6a", None, "a CPU has nothing to wait for")
if device.type == "cuda":
    large = torch.rand(2**14, 2**14, device=device)
    torch.mm(large, large)  # Keeps the GPU busy for a while.
    before = torch.cuda.current_stream().query()
    benchmark.timer()  # The clock of Timer.
    after = torch.cuda.current_stream().query()
    judge("6a", None if before else after, f"done before: {before}, after: {after}")

# %%
# Now with :func:`optimbench.compare`, because of claim 9: an eager step called by a function, as the compiled one is,
# and as many parameters in one tensor and in 300, on one CPU thread, since several would wait for each other.
wrapped_opt, run_s = make_adam(), 0.1 if quick else 1.0
steps = {"eager": eager_opt.step, "compiled": compiled_step}
steps["wrapped"] = lambda: wrapped_opt.step()  # noqa: PLW0108 - it is the point.
claims_comparison = ob.compare(steps, baseline="eager", min_run_time_s=run_s)
one_opt, many_opt = make_adam((300, 1024)), make_adam(*[(1024,)] * 300)
cuts = {"1 tensor": one_opt.step, "300 tensors": many_opt.step}
pieces_comparison = ob.compare(
    cuts, baseline="1 tensor", min_run_time_s=run_s, num_threads=1
)
claims_comparison

# %%
# Does our interval hold the ratio of the original's sample: published ``747.24 µs`` eager, published ``392.07 µs``
# compiled, on a device not named? "Memory-bound" is a step where moving the bytes explains more than half of the time.
row, speedup = claims_comparison.row, claims_comparison.speedup
compiled, many = speedup("compiled").wall, pieces_comparison.speedups[-1].wall
for number, wall in ("4b", many), ("8", speedup("wrapped").wall):
    is_same = True if wall.high < 1.1 * wall.low else None  # Wider: cannot tell.
    is_same = False if wall.is_faster or wall.is_slower else is_same
    judge(number, is_same, f"{wall.verdict} {wall.interval}")
sample = 747.24 / 392.07
gain = f"sample {sample:.2f}x, here {compiled.verdict} {compiled.interval}"
judge("10", compiled.low <= sample <= compiled.high, gain)
eager_s, compiled_s = row("eager").median_s, row("compiled").median_s
n_eager = row("eager").kernel_count or n_all  # On a CPU: operations.
n_now = row("compiled").kernel_count or n_kernels  # On a CPU: those generated.
judge("2b", 0 < n_now < n_eager, f"{n_eager:g} eager, {n_now:g} compiled")
n_steps = sum(each.duration_s or 0 for each in _log.compilations) / compiled_s
evidence = f"compiled as long as {n_steps:,.0f} steps take, last in call {last_call}"
judge("7", n_steps > 10 and last_call < 5, evidence)
floor_s = ob.floor_s(opt, ob.copy_bandwidth(device))
shares = f"{floor_s / eager_s:.2g} of eager time, {floor_s / compiled_s:.2g} compiled"
judge("1", floor_s > max(eager_s, compiled_s) / 2, shares)

claims = ob.Table(
    name="The claims and what became of them",
    columns=("number", "claim", "verdict", "evidence"),
    cells=tuple(judged[number] for number in CLAIMS),  # Raises if one was not judged.
)
claims

# %%
# What this does not show
# -----------------------
# * What holds on this machine need not hold on yours, least of all claims 1, 2, 4 and 10: the tabs show other machines.
# * Each claim is judged by one small test. Most have a page of their own, which says more.
