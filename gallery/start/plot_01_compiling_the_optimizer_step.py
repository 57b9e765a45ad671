r"""
Compiling the optimizer step
============================

One step of Adam as PyTorch runs it by default, against the same step under :func:`torch.compile`.

**You will see**

* what a step must cost at least, before anything is measured;
* what the first call costs, and whether and after how many steps that is earned back;
* wall time, host time and kernel time apart, and which of them compiling improves on this machine;
* why two averages taken one after the other are not yet a comparison.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. A GPU of compute capability 7.0 or newer is where the result
matters; without one the page runs on the CPU and says so. ``optimbench`` is a wheel served by the site this page
comes from (see *Install* there).
"""

# %%
# Numbers mean nothing without their machine: the GPU if :func:`torch.compile` can generate code for it, else the CPU.
import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
machine = ob.collect_environment()
machine

# %%
# What is updated, and what that must cost
# ----------------------------------------
# Ten square layers without bias. One forward and one backward pass give every parameter a gradient; without gradients
# ``step()`` does nothing, and its time means nothing. Each step gets a model of its own, from the same seed.
import os

import torch

# The automated tests of this page set OPTIMBENCH_QUICK to run it on a tiny model.
width, run_time_s = (64, 0.1) if "OPTIMBENCH_QUICK" in os.environ else (1024, 1.0)


def make_optimizer(**options):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(10)]
    model = torch.nn.Sequential(*layers).to(device)
    model(torch.rand(width, device=device)).sum().backward()
    return torch.optim.Adam(model.parameters(), lr=0.01, **options)


# %%
# Adam reads the parameter, its gradient and two moments, and writes the parameter and both moments: seven numbers of
# four bytes for each parameter. However the step is written, it has to move these bytes.
opt = make_optimizer()
floor_s = ob.floor_s(opt, ob.copy_bandwidth(device))
print(f"{ob.bytes_per_step(opt) / 1e6:.1f} MB, copied in {floor_s * 1e6:,.1f} µs")

# %%
# The compiled step
# -----------------
# An eager step launches kernels for one operation after the other, and each reads and writes memory anew. Compiling
# fuses them. We compile a function that calls ``opt.step()``. ``fullgraph=False`` is the default and lets the compiler
# leave its graph where it must. ``fullgraph=True`` is no option here: ``Optimizer.step`` breaks the graph on purpose.
eager_opt = make_optimizer()


@torch.compile(fullgraph=False)
def compiled_step():
    opt.step()


try:
    torch.compile(eager_opt.step, fullgraph=True)()
except torch._dynamo.exc.Unsupported as error:
    print("fullgraph=True raises:", str(error).splitlines()[0])

# %%
# Warm-up, and the same result
# ----------------------------
# The first call runs the whole compiler and is far slower than the rest, so warm-up calls come before any timing. We
# time each of them, starting from an empty compile cache, and take the same five steps eagerly.
import time

from torch._inductor.utils import fresh_cache


def timed_call_s(step):
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


with fresh_cache():
    compiled_calls_s = [timed_call_s(compiled_step) for _ in range(5)]
eager_calls_s = [timed_call_s(eager_opt.step) for _ in range(5)]

# %%
# Speed is only worth a look if both give the same parameters. They may differ by rounding: fused kernels add and
# multiply in another order.
pairs = zip(*(o.param_groups[0]["params"] for o in (eager_opt, opt)), strict=True)
difference = max((a - b).abs().max().item() for a, b in pairs)
print(f"largest difference between two parameters after five steps: {difference:.1e}")
assert difference < 1e-5, "the compiled step does not compute what the eager one does"

warm_up = ob.Table(
    name="The first five calls, seconds",
    columns=("call", "eager", "compiled"),
    cells=tuple(zip(range(1, 6), eager_calls_s, compiled_calls_s, strict=True)),
)
warm_up

# %%
# Timing, the usual way
# ---------------------
# The helper that many tutorials use. ``Timer`` waits for the device, ``blocked_autorange`` finds how many calls make a
# block and repeats blocks until a fixed time is filled.
from torch.utils import benchmark


def benchmark_torch_function_in_microseconds(f):
    timed = benchmark.Timer("f()", globals={"f": f}).blocked_autorange()
    print(f"  {len(timed.times)} blocks of {timed.number_per_run} calls")
    return timed.mean * 1e6


for turn in ("first", "second"):
    eager_us = benchmark_torch_function_in_microseconds(eager_opt.step)
    compiled_us = benchmark_torch_function_in_microseconds(compiled_step)
    ratio = eager_us / compiled_us
    print(f"{turn}: eager {eager_us:.1f} µs, compiled {compiled_us:.1f}, {ratio:.2f}x")

# %%
# Both ratios are of the same two functions. Each mean was taken at another moment, has no interval, and is of one CPU
# thread, the timer's default: that may :doc:`compile it again <../keep_it_compiled/plot_12_what_else_recompiles>`.
#
# Timing, so that it can be compared
# ----------------------------------
# :func:`optimbench.compare` measures all steps in interleaved rounds, in random order, with as many CPU threads as
# training would use. The speed-up is the median over the rounds, with its interval. We add, and check first, Adam's own
# fused step, and one by :func:`optimbench.build_step`, compiled on one flat buffer for all parameters.
built = "flat_compiled"
verdicts = ob.check_sameness(make_optimizer(), ["fused", built])
assert all(verdict.is_same for verdict in verdicts), verdicts

steps = {"eager": eager_opt.step, "compiled": compiled_step}
steps["fused=True"] = make_optimizer(fused=True).step
steps[built] = ob.build_step(make_optimizer(), built)
comparison = ob.compare(steps, baseline="eager", min_run_time_s=run_time_s)
comparison

# %%
# Reading the result
# ------------------
# On a GPU three times matter. *Kernels* is the time the device worked, *host* the time Python needs to launch that into
# an empty queue, *wall* what training waits for: about the longer of the two, or less. A step can be made cheaper for
# the device and stay slow because the host cannot launch it any faster. On a CPU there is only the wall time.
#
# The verdict is read from the intervals. Unless compiling is clearly faster, nothing earns back the first calls.
for name in ("compiled", "fused=True", built):
    print(comparison.conclusion(name))
gain_s = comparison.row("eager").median_s - comparison.row("compiled").median_s
extra_s = sum(compiled_calls_s) - sum(eager_calls_s)
print(f"The first five compiled calls cost {extra_s:.1f} s more than the eager ones.")
if comparison.speedup("compiled").wall.is_faster:
    print(f"{extra_s / gain_s:,.0f} steps earn that back.")

import matplotlib.pyplot as plt

from optimbench import figures

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
figures.draw(comparison, axes).set_title(comparison.finding)
plt.show()

# %%
# What this does not show
# -----------------------
# * Ten large tensors are a kind case for a GPU. Most models have :doc:`more <../make_it_fast/plot_08_how_it_scales>`.
# * A step is a share of an iteration: :doc:`in a training loop <../use_it/plot_15_in_a_training_loop>`.
# * The learning rate never changed here. What happens when it does is on the next page.
