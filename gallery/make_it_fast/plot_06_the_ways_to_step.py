r"""
The ways to step, and which wins where
======================================

For-loop, foreach, fused and compiled, with and without a CUDA graph and flat buffers, on a few large tensors, on many
small ones and on those of a transformer.

**You will see**

* the same update written in up to nine ways, all giving the same parameters;
* that the number of tensors decides as much as the number of parameters;
* which way wins for which model, on the machine this page was built on.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Three models whose tensors differ in size and number: ten of a million numbers, thirty of a thousand, and the 148 of
# GPT-2. On a CPU there are eight of the small ones, since C++ is compiled for every tensor anew, and GPT-2's have a
# fiftieth of their numbers. The tests of this page take three small ones, and a thousandth of the others.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
on_gpu, is_quick = device.type == "cuda", "OPTIMBENCH_QUICK" in os.environ
n_small, few_scale, gpt2_scale = (30, 1.0, 1.0) if on_gpu else (8, 1.0, 0.02)
if is_quick:
    n_small, few_scale, gpt2_scale = 3, 0.001, 0.001


def few_large():
    return ob.make_parameters("ten_layers", device=device, scale=few_scale)


def many_small():
    return ob.make_parameters("many_small", device=device)[:n_small]


def transformer():
    return ob.make_parameters("gpt2", device=device, scale=gpt2_scale)


# %%
# The recipes
# -----------
# A recipe is a way to compute one and the same update. :func:`optimbench.build_step` makes a step of it that a training
# loop can call, on the optimizer you already have: schedulers and checkpoints keep working on that one.
def make_optimizer(make_parameters):
    return torch.optim.Adam(make_parameters(), lr=0.01)


recipes = ob.possible_recipes(make_optimizer(few_large))
print("possible here:", ", ".join(recipes))
print("not possible: ", ob.why_not(make_optimizer(few_large), "compiled_cudagraph"))

# %%
# What each must cost at least, before anything is measured: the bytes of a step over the bandwidth of a copy, and for
# the small tensors next to nothing.
bandwidth = ob.copy_bandwidth(device)
for make_parameters in (few_large, many_small, transformer):
    opt = make_optimizer(make_parameters)
    floor_us = ob.floor_s(opt, bandwidth) * 1e6
    n_tensors = len(opt.param_groups[0]["params"])
    print(
        f"{make_parameters.__name__}: {n_tensors} tensors, at least {floor_us:.1f} µs"
    )


# %%
# All do the same: ten steps with changing gradients and learning rates, compared with the for-loop. The check is shown
# to :func:`optimbench.compare`, which gives no time to a step that does something else. With more than a hundred
# tensors only flat buffers are compiled: more tensors take :doc:`longer <plot_09_what_compiling_costs>`.
MOST_COMPILED = 100


def compare_recipes(make_parameters):
    n_tensors = len(make_parameters())
    taken = [
        recipe
        for recipe in recipes
        if n_tensors <= MOST_COMPILED or not recipe.startswith("compiled")
    ]
    verdicts = ob.check_sameness(make_optimizer(make_parameters), taken)
    differs = {
        verdict.recipe: verdict.reason for verdict in verdicts if not verdict.is_same
    }
    assert not differs, differs
    return ob.compare(
        {
            recipe: ob.build_step(make_optimizer(make_parameters), recipe)
            for recipe in taken
        },
        baseline="foreach",
        check=differs.get,
        min_run_time_s=0.1 if is_quick else 0.5,
    )


# %%
# A few large tensors
# -------------------
# Here the bytes decide: whoever reads and writes every number once is fast.
few_large_comparison = compare_recipes(few_large)
few_large_comparison

# %%
# Many small tensors
# ------------------
# Here the launches decide. The kernels have hardly anything to do, and the host has to name every tensor in every
# step, unless the step is replayed from a graph or sees one tensor only.
many_small_comparison = compare_recipes(many_small)
many_small_comparison

# %%
# A transformer
# -------------
# Here both do. Of the 148 tensors 98 have less than four thousand numbers, and one has a third of all.
transformer_comparison = compare_recipes(transformer)
transformer_comparison

# %%
# Which wins where
# ----------------
# :meth:`~optimbench.Comparison.fastest` names the recipe of the least median, and all that are not clearly slower.
import matplotlib.pyplot as plt

results = {
    "few large": few_large_comparison,
    "many small": many_small_comparison,
    "transformer's": transformer_comparison,
}
title = ";\n".join(
    f"{name}: {' or '.join(comparison.fastest())} is fastest"
    for name, comparison in results.items()
)
print(title)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, comparison), marker in zip(results.items(), "os^", strict=True):
    rows = comparison.rows
    axes.plot(
        [row.median_s * 1e6 for row in rows],
        [row.name for row in rows],
        marker,
        label=f"{name} tensors",
    )
axes.set(xscale="log", xlabel="µs a step")
axes.set_title(title)
axes.grid(visible=True, alpha=0.3)
axes.legend()
plt.show()

# %%
# What this does not show
# -----------------------
# * A CUDA graph needs gradients that stay where they are, and flat buffers need an update that works element by
#   element. The next pages say what each asks for.
# * Compiling has a price that is paid before the first step; see the column *first call*.
# * Larger models: :doc:`how it scales <plot_08_how_it_scales>` goes up to a thousand million parameters.
