r"""
Compiling the optimizer step
============================

One step of Adam as PyTorch runs it by default, against the same step under :func:`torch.compile`.

**You will see**

* what a step must cost at least, before anything is measured;
* what the first call costs, and after how many steps that is earned back;
* wall time, host time and kernel time apart, and which of them compiling improves on this machine;
* why two averages taken one after the other are not yet a comparison.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. A GPU of compute capability 7.0 or newer is where the result
matters; without one the page runs on the CPU and says so. ``optimbench`` is a wheel served by the site this page
comes from (see *Install* there).
"""

# %%
# The machine
# -----------
# Numbers mean nothing without the machine they come from. We take the GPU if :func:`torch.compile` can generate code
# for it, otherwise the CPU.
import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
machine = ob.collect_environment()
machine

# %%
# What is updated, and what that must cost
# ----------------------------------------
# Ten square layers without bias. One forward and one backward pass give every parameter a gradient; without gradients
# ``step()`` does nothing, and its time would mean nothing. We need the same model twice, so a function makes it from a
# seed.
import os

import torch

# The automated tests of this page set OPTIMBENCH_QUICK to run it on a tiny model.
width = 64 if "OPTIMBENCH_QUICK" in os.environ else 1024


def make_parameters():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *[torch.nn.Linear(width, width, bias=False) for _ in range(10)]
    ).to(device)
    model(torch.rand(width, device=device)).sum().backward()
    return list(model.parameters())


# %%
# Adam reads the parameter, its gradient and two moments, and writes the parameter and both moments: seven numbers of
# four bytes for each parameter. However the step is written, it cannot take less time than moving these bytes.
n_parameters = sum(p.numel() for p in make_parameters())
print(
    f"{n_parameters:,} parameters: at least {n_parameters * 7 * 4 / 1e6:.1f} MB read or written by every step"
)

# %%
# The compiled step
# -----------------
# We compile a function that calls ``opt.step()``. ``fullgraph=False`` is the default and lets the compiler leave its
# graph where it must. ``fullgraph=True`` is no option here: ``Optimizer.step`` breaks the graph on purpose, and asking
# for one graph raises.
opt = torch.optim.Adam(make_parameters(), lr=0.01)
eager_opt = torch.optim.Adam(make_parameters(), lr=0.01)


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
pairs = list(
    zip(eager_opt.param_groups[0]["params"], opt.param_groups[0]["params"], strict=True)
)
difference = max((eager - compiled).abs().max().item() for eager, compiled in pairs)
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
# block and repeats blocks until a fixed time is filled. We print the number of blocks too.
from torch.utils import benchmark


def benchmark_torch_function_in_microseconds(f, *args, **kwargs):
    timer = benchmark.Timer(
        "f(*args, **kwargs)", globals={"f": f, "args": args, "kwargs": kwargs}
    )
    measured = timer.blocked_autorange()
    print(f"  {len(measured.times)} blocks of {measured.number_per_run} calls")
    return measured.mean * 1e6


for turn in ("first", "second"):
    eager_us = benchmark_torch_function_in_microseconds(eager_opt.step)
    compiled_us = benchmark_torch_function_in_microseconds(compiled_step)
    print(
        f"{turn} time: eager {eager_us:.1f} µs, compiled {compiled_us:.1f} µs, ratio {eager_us / compiled_us:.2f}"
    )

# %%
# Both ratios are of the same two functions. Each mean was taken at another moment, on one CPU thread (the timer's
# default), from as many blocks as printed; the ratio carries no interval, so nobody can tell it from chance.
#
# Timing, so that it can be compared
# ----------------------------------
# :func:`optimbench.compare` measures all steps in interleaved rounds, in random order, with as many CPU threads as
# training would use. The speed-up is the median over the rounds and comes with its interval. We add Adam's own fused
# implementation, which needs no compiler.
fused_opt = torch.optim.Adam(make_parameters(), lr=0.01, fused=True)

comparison = ob.compare(
    {"eager": eager_opt.step, "fused=True": fused_opt.step, "compiled": compiled_step},
    baseline="eager",
    min_run_time_s=0.1 if "OPTIMBENCH_QUICK" in os.environ else 2.0,
)
comparison

# %%
# Reading the result
# ------------------
# On a GPU three times matter. *Kernels* is the time the device worked: compiling fuses the pointwise operations into
# few kernels that read and write each number once. *Host* is the time Python needs to launch them. *Wall* is what
# training waits for: about the longer of the two. A step can be made three times cheaper for the device and stay
# slow because the host cannot launch it any faster. On a CPU there is only the wall time.
#
# The gate: we conclude what the intervals allow, whatever that is.
for name in ("fused=True", "compiled"):
    print(comparison.conclusion(name))

wall = comparison.speedup("compiled").wall
if not wall.is_faster:
    print("Compiling this step does not pay here. Nothing below is an argument for it.")

# %%
# What the first calls cost comes back only if every later step saves time.
gain_s = comparison.row("eager").median_s - comparison.row("compiled").median_s
extra_s = sum(compiled_calls_s) - sum(eager_calls_s)
if wall.is_faster:
    print(
        f"The first five calls cost {extra_s:.1f} s more; {extra_s / gain_s:,.0f} steps earn that back."
    )
else:
    print(
        f"The first five calls cost {extra_s:.1f} s more, and no number of steps is known to earn that back."
    )

# %%
# The same numbers as a picture.
import matplotlib.pyplot as plt

from optimbench import figures

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
figures.draw(comparison, axes)
plt.show()

# %%
# What this does not show
# -----------------------
# * Ten large tensors are a kind case. The time of a step depends on the number of tensors as well as on the number of
#   parameters: a real model has hundreds, and the host's part grows with them.
# * A step is a small share of an iteration that has a forward and a backward pass too.
# * The learning rate never changed. What happens when it does is the subject of the next page.
