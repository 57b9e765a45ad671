r"""
What compiling a step costs
===========================

The first call of a compiled Adam step against all later ones: with an empty compile cache, with a filled one, and for
more and more tensors.

**You will see**

* how the time of the first call depends on the number of tensors, and whether on their size;
* what the compile cache saves, and after how many steps the first call is earned back.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. ``optimbench`` is a wheel served by the site this page comes
from (see *Install* there).
"""

# %%
# What the first call does
# ------------------------
# It traces ``opt.step()`` into a graph, generates code for it, and has that compiled: Triton kernels on a GPU, C++ on a
# CPU. Each parameter brings its own operations into the graph, so we expect a cost for each *tensor*; how many numbers
# are in a tensor is one number in the code. We go up to 16 tensors on a GPU and to 8 on a CPU, where C++ takes longer.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests of this page take one tensor.
counts = (1, 4, 8, 16) if device.type == "cuda" else (1, 2, 4, 8)
counts, n_tensors, wide = ((1,), 1, 64) if quick else (counts, 4, 1024)


def make_adam(n_tensors, width=64):
    parameters = ob.make_parameters([(width, width)] * n_tensors, device=device)
    return torch.optim.Adam(parameters, lr=0.01)


# %%
# Before anything is timed: does the compiled step give the same parameters? This first compile also loads the compiler
# itself into the process, which would otherwise be counted as the cost of one tensor.
opt, eager = make_adam(counts[0]), make_adam(counts[0])


@torch.compile
def compiled_step():
    opt.step()


for _ in range(5):
    compiled_step()
    eager.step()
torch.testing.assert_close(*[o.param_groups[0]["params"] for o in (opt, eager)])

# %%
# More and more tensors, cold and warm
# ------------------------------------
# Compiled code is kept on disk. ``fresh_cache`` gives us an empty cache for a while. We time the first call, then make
# the process forget what it compiled (:func:`torch.compiler.reset`) and time the first call again: now tracing is done
# once more, but the code comes from the disk. PyTorch counts its cache hits, so we need not guess.
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.utils.benchmark import timer  # Waits for the GPU.


def timed_s(step):
    start = timer()
    step()
    return timer() - start


def cache_hits():
    return counters["inductor"]["fxgraph_cache_hit"]  # A reset makes new counters.


rows = []
for count in counts:
    opt = make_adam(count)  # What compiled_step() updates from now on.
    with fresh_cache():
        torch.compiler.reset()
        hits_before = cache_hits()
        cold_s = timed_s(compiled_step)
        assert cache_hits() == hits_before, "the cache was not empty"
        later_s = timed_s(compiled_step)
        torch.compiler.reset()
        warm_s = timed_s(compiled_step)
    hits = cache_hits() - hits_before
    assert hits, "the cache was not used"
    rows.append((count, cold_s, warm_s, hits, later_s))

first_calls = ob.Table(
    name="The first call, by number of tensors",
    columns=("tensors", "empty cache, s", "filled, s", "cache hits", "second call, s"),
    cells=tuple(rows),
)
first_calls

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for column, label in ((1, "first call, empty cache"), (2, "first call, filled cache")):
    axes.plot(counts, [row[column] for row in rows], "o-", label=label)
axes.set_xticks(counts, counts)
axes.set(xlabel="tensors", ylabel="seconds", ylim=0)
_, cold_s, warm_s, *_ = rows[-1]
axes.set_title(f"First call, {count} tensors: {cold_s:.1f} s, cached {warm_s:.1f} s")
axes.legend()
plt.show()

# %%
# After a restart
# ---------------
# A job that is started again has nothing in memory, only the cache on disk. So we time the first call in a new process,
# twice: the first one finds an empty cache and fills it for the second. Both have to load the compiler too.
import subprocess
import sys

PROGRAM = """
import sys, torch, optimbench as ob
from torch.utils.benchmark import timer
shapes = [(int(sys.argv[2]),) * 2] * int(sys.argv[1])
opt = torch.optim.Adam(ob.make_parameters(shapes, device=sys.argv[3]), lr=0.01)
step, start = torch.compile(opt.step), timer()
step()
print(timer() - start)
"""


def first_call_in_a_new_process_s():
    command = [sys.executable, "-c", PROGRAM, str(n_tensors), str(wide), str(device)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


with fresh_cache():
    restart_s = [first_call_in_a_new_process_s() for _ in range(2)]

# %%
# When it is earned back
# ----------------------
# Every later step has to save some time, or no number of steps is enough. Now the tensors are large, 1024 by 1024, as
# in a model. The comparison starts from an empty cache.
opt, eager = make_adam(n_tensors, wide), make_adam(n_tensors, wide)
torch.compiler.reset()
steps, run_s = {"eager": eager.step, "compiled": compiled_step}, 0.2 if quick else 1.0
with fresh_cache():
    comparison = ob.compare(steps, baseline="eager", min_run_time_s=run_s)
print(comparison.conclusion("compiled"))
comparison

# %%
# If the compiled step is not clearly faster, there is no break-even, and the table has none.
compiled, small_s = comparison.row("compiled"), {row[0]: row[1] for row in rows}
gain_s = comparison.row("eager").median_s - compiled.median_s
is_faster = comparison.speedup("compiled").wall.is_faster
print(f"{compiled.first_call_s:.1f} s; for 64 by 64 it was {small_s[n_tensors]:.1f} s")
costs_s = {
    "this process, empty cache": compiled.first_call_s,
    "new process, empty cache": restart_s[0],
    "new process, filled cache": restart_s[1],
}
break_even = ob.Table(
    name=f"Steps that earn back the first call, {n_tensors} tensors of {wide} by {wide}",
    columns=("where the step is compiled", "first call, s", "steps"),
    cells=tuple(
        (where, cost_s, round(cost_s / gain_s) if is_faster else None)
        for where, cost_s in costs_s.items()
    ),
)
break_even

# %%
# What this does not show
# -----------------------
# * :doc:`Recompiles <../start/plot_02_compiled_optimizers_and_lr_schedulers>`: each is about as long as a first call.
# * Compiling forward and backward passes, which have larger graphs than a step.
# * Caches shared between machines: :func:`torch.compiler.save_cache_artifacts` packs one up.
