r"""
Every optimizer of torch.optim
==============================

One step of each optimizer in ``torch.optim``: eager, fused and compiled, and on a GPU replayed from a CUDA graph too.

**You will see**

* which of these ways each optimizer has, and the reason where it has not;
* that a time is shown only for a way that gives the same parameters and state as the plain for-loop;
* what each optimizer must move at least, and what it takes;
* how to measure in processes of their own, so that a crash costs one row and not the page.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. ``optimbench`` is a wheel served by the site this page comes
from (see *Install* there).
"""

# %%
# The optimizers
# --------------
# All classes that ``torch.optim`` has, with torch's default settings, and two variants that keep other state: SGD with
# momentum, and AdamW with ``amsgrad``. The gradients of SparseAdam are sparse, with all their rows there. LBFGS calls a
# function for the loss; here that is constant, so a step is one update.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")

OPTIMIZERS = {
    name: (name, {})
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
}
del OPTIMIZERS["Optimizer"]
OPTIMIZERS["SGD momentum"] = ("SGD", {"momentum": 0.9})
OPTIMIZERS["AdamW amsgrad"] = ("AdamW", {"amsgrad": True})
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests of this page take a few of them.
names = ("LBFGS", "SGD", "SparseAdam") if quick else sorted(OPTIMIZERS, key=str.lower)
print(f"{len(names)} rows: {', '.join(names)}")

# %%
# What each must move
# -------------------
# An optimizer that works element by element, so that it can use flat buffers, reads the parameter, its gradient and its
# state, and writes the parameter and the state. In float32 that is so many bytes for each parameter, whatever the way.
# For the others we do not know: Muon multiplies matrices, for example.
least_bytes = {}
for name in names:
    kind, settings = OPTIMIZERS[name]
    parameters = ob.make_parameters([(10, 10)])
    optimizer = getattr(torch.optim, kind)(parameters, **settings)
    if ob.why_not(optimizer, "flat_compiled") is None:
        least_bytes[name] = ob.bytes_per_step(optimizer) // 100
print("bytes a parameter:", least_bytes)

# %%
# A process for each
# ------------------
# We do not measure them in this process. On a GPU, a script that timed and profiled one optimizer after the other died
# of SIGSEGV when it came to NAdam, two times out of two; NAdam alone ran to the end. Seven such scripts, made to find
# the cause on the same kind of GPU with PyTorch 2.11, did not die, so we do not know it. No ``except`` catches such a
# crash, and all that was measured before is lost. So each row is a command of its own, which anyone can type:
#
# .. code-block:: text
#
#    python -m optimbench compare --optimizer Adam --recipes fused compiled
#
# On a GPU it takes ten tensors of 1024 by 1024. On a CPU, where most of the time would go into compiling C++ for every
# tensor, we take two with a twentieth of the numbers, and one CPU thread, since several commands run side by side.
import json

if device.type == "cuda":
    recipes = ["fused", "compiled", "compiled_cudagraph", "flat_compiled_cudagraph"]
    counted = ["eager", "compiled"]
    size = ["--tensors", "1"] if quick else []
else:
    recipes, counted = ["fused", "compiled"], []
    size = ["--threads", "1", "--tensors", "2", "--scale", "0.01" if quick else "0.05"]
    print("CUDA graphs and kernel counts need a CUDA device; not measured here")


def arguments(kind, settings):
    optimizer = ["--optimizer", kind, "--settings", json.dumps(settings)]
    how = ["--recipes", *recipes, "--min-run-time", "0.1", "--device", device.type]
    return ["compare", *optimizer, *how, *size]


# %%
# :func:`optimbench.run_all_isolated` runs such commands side by side, but times each while all others wait. We take two
# for each processor, on a GPU one for each 4 GB of its free memory at most. One that dies leaves a row that says so.
import time

n_processes = min(len(names), 2 * len(os.sched_getaffinity(0)))
if device.type == "cuda":
    n_processes = min(n_processes, torch.cuda.mem_get_info(device)[0] // 2**32)
start = time.perf_counter()
found = ob.run_all_isolated(
    {name: arguments(*OPTIMIZERS[name]) for name in names},
    at_once=max(1, n_processes),
    time_limit_s=120,
    progress=lambda name: print(f"{time.perf_counter() - start:5.0f} s: {name}"),
)

# %%
# All of them
# -----------
# Before a way is timed, its process takes ten steps with it and with the for-loop, from the same start, with gradients
# and a learning rate that change, and compares parameters and state: no time without the same result. *Eager* is the
# optimizer's own ``step``, with its settings as they are. Where a time is missing, the last column says why, in a word.
# The reasons are below the table, once where several share one, and so are the times that nobody should rely on.
ways = ["eager", *recipes]
timed, rows, remarks = {}, [], {}
for name in names:
    timed[name] = row_of = {row.name: row for row in getattr(found[name], "rows", ())}
    missing = getattr(found[name], "not_measured", (found[name],))
    fastest = found[name].fastest() if len(row_of) > 1 else ()
    gains = [found[name].speedup(w).wall.verdict for w in fastest if w != "eager"]
    times_us = [row_of[w].median_s * 1e6 if w in row_of else None for w in ways]
    kernels = [row_of[w].kernel_count if w in row_of else None for w in counted]
    outcomes = "; ".join(dict.fromkeys(m.outcome for m in missing))
    best = (" or ".join(fastest) or None, *(gains[:1] or [None]))
    cells = (*best, least_bytes.get(name), *times_us, *kernels, outcomes or None)
    rows.append((name, *cells))
    kind, _ = OPTIMIZERS[name]
    for m in missing:
        reason = m.reason.replace(f"{kind}.step", "its step").replace(kind, "it")
        remarks.setdefault(f"{m.name}: {m.outcome}, {reason}", []).append(name)
    for way, row in row_of.items():
        for said in row.warnings:
            if "on the GPU" not in said:  # The processes that wait are there.
                remarks.setdefault(said.partition(":")[0], []).append(f"{name} {way}")

titles = [*(f"{w}, µs" for w in ways), *(f"kernels, {w}" for w in counted)]
titles = ["optimizer", "fastest", "against eager", "least B/parameter", *titles]
every_optimizer = ob.Table(
    name="One step of every optimizer of torch.optim",
    columns=(*titles, "empty where"),
    cells=tuple(rows),
    remarks=tuple(f"{said} ({', '.join(of)})" for said, of in remarks.items()),
)
every_optimizer

# %%
# A result that differs
# ---------------------
# RAdam has no time for its compiled ways where they give other parameters. That is no fault of the compiler. RAdam
# scales its early steps by a factor that it computes from the step's number, as a small difference of large ones. In
# the eager for-loop that number is a Python float of 64 bits; compiled, it is a tensor of 32. We compute it both ways.


def rectification(step, beta2=0.999):
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * step * beta2**step / (1 - beta2**step)
    scale = (limit - 4) * (limit - 2) / limit
    return ((length - 4) * (length - 2) / length / scale) ** 0.5


for step in (6, 10, 100, 1000):
    exact, in_float32 = rectification(step), rectification(torch.tensor(float(step)))
    print(f"step {step}: the factor differs by {abs(in_float32 / exact - 1):.1e}")

# %%
# Reading the table
# -----------------
# How many of the optimizers have each way, and for how many of them it is clearly faster or slower than eager.
for way in recipes:
    walls = [found[name].speedup(way).wall for name in names if way in timed[name]]
    faster, slower = sum(w.is_faster for w in walls), sum(w.is_slower for w in walls)
    print(f"{way}: {len(walls)} of {len(names)}; {faster} faster, {slower} slower")

# %%
# What this does not show
# -----------------------
# * Which optimizer is the best one: a fast step that learns slowly is no gain.
# * Other settings and sizes. ``python -m optimbench recommend`` measures all ways on a workload of your choice.
# * :doc:`What compiling costs <../make_it_fast/plot_09_what_compiling_costs>` before the first step.
