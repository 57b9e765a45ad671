r"""
The ways to step, and which wins where
======================================

For-loop, foreach, fused and compiled, with and without a CUDA graph and flat buffers, on a few large tensors, on many
small ones, on those of a transformer and on very large ones.

**You will see**

* the same update written in up to nine ways, all giving the same parameters;
* that the number of tensors decides as much as the number of parameters;
* which way wins for which model, on the machine this page was built on.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Four models whose tensors differ in size and number: ten of a million numbers, twenty of a thousand, the 148 of GPT-2,
# and sixteen of 67 million, or of as many as fit into the GPU eight times over with gradients and moments. A CPU, which
# compiles C++ for every tensor anew, takes fewer of some and a fiftieth of the numbers of others.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
on_gpu, is_quick = device.type == "cuda", "OPTIMBENCH_QUICK" in os.environ
n_small, n_large, gpt2_scale, large_scale = 8, 4, 0.02, 0.02
if on_gpu:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    fits = free_bytes / (8 * 4 * 4 * 16 * 8192**2)
    n_small, n_large, gpt2_scale, large_scale = 20, 16, 1.0, min(1.0, fits)
if is_quick:  # The tests of this page.
    n_small, n_large, gpt2_scale, large_scale = 3, 2, 0.001, 0.0001
MODELS = {
    "few large": ("ten_layers", 10, 0.001 if is_quick else 1.0),
    "many small": ("many_small", n_small, 1.0),
    "transformer's": ("gpt2", 148, gpt2_scale),
    "very large": ("billion", n_large, large_scale),
}


def make_optimizer(model):
    workload, n_tensors, scale = MODELS[model]
    parameters = ob.make_parameters(workload, device=device, scale=scale)
    return torch.optim.Adam(parameters[:n_tensors], lr=0.01)


# %%
# The recipes
# -----------
# A recipe is a way to compute one and the same update. :func:`optimbench.build_step` makes a step of it that a training
# loop can call, on the optimizer you already have: schedulers and checkpoints keep working on that one. For-loop and
# foreach have no recipe with a graph: whoever may use one takes kernels that are fewer.
recipes = ob.possible_recipes(make_optimizer("few large"))
print("possible here:", ", ".join(recipes))
why_not = ob.why_not(make_optimizer("few large"), "compiled_cudagraph")
print("CUDA graphs: ", why_not or "possible")

# %%
# What each must cost at least, before anything is measured: the bytes of a step over the bandwidth of a copy, and for
# the small tensors next to nothing.
bandwidth = ob.copy_bandwidth(device)
for model in MODELS:
    opt = make_optimizer(model)
    n_tensors = len(opt.param_groups[0]["params"])
    floor_us = ob.floor_s(opt, bandwidth) * 1e6
    print(f"{model}: {n_tensors} tensors, at least {floor_us:.1f} µs")


# %%
# All do the same: ten steps with changing gradients and learning rates, compared with the for-loop. The check is shown
# to :func:`optimbench.compare`, which gives no time to a step that does something else. With more than a hundred
# tensors only flat buffers are compiled: more tensors take :doc:`longer <plot_09_what_compiling_costs>`.
# The GPU's memory is filled once beforehand, :doc:`for Inductor <plot_08_how_it_scales>`.
MOST_COMPILED = 100


def compare_recipes(model, left_out=()):
    if on_gpu:
        free_bytes, _ = torch.cuda.mem_get_info(device)
        torch.empty(free_bytes * 9 // 10, dtype=torch.uint8, device=device)
        torch.cuda.empty_cache()
    n_tensors = len(make_optimizer(model).param_groups[0]["params"])
    taken = [
        recipe
        for recipe in recipes
        if n_tensors <= MOST_COMPILED or not recipe.startswith("compiled")
    ]
    taken = [recipe for recipe in taken if recipe not in left_out]
    print("left out:", ", ".join(r for r in recipes if r not in taken) or "none")
    verdicts = ob.check_sameness(make_optimizer(model), taken)
    differs = {v.recipe: v.reason for v in verdicts if not v.is_same}
    assert not differs, differs
    return ob.compare(
        {recipe: ob.build_step(make_optimizer(model), recipe) for recipe in taken},
        baseline="foreach",
        check=differs.get,
        min_run_time_s=0.1 if is_quick else 0.3,
    )


# %%
# A few large tensors
# -------------------
# On a GPU the bytes decide: kernels that read and write every number once are fast. A CPU can need longer to compute
# than to read and write.
few_large_comparison = compare_recipes("few large")
few_large_comparison

# %%
# Many small tensors
# ------------------
# Here the launches decide. The kernels have hardly anything to do, and the host has to name every tensor in every
# step, unless the step is replayed from a graph or sees one tensor only.
many_small_comparison = compare_recipes("many small")
many_small_comparison

# %%
# A transformer
# -------------
# Here both do. Of the 148 tensors 98 have less than four thousand numbers, and one has a third of all.
transformer_comparison = compare_recipes("transformer's")
transformer_comparison

# %%
# Very large tensors
# ------------------
# On a GPU the launches are over long before the kernels. All recipes have to be in memory at once, so a GPU leaves out
# four that the first table has shown beside their likes.
beside = ("forloop", "compiled_cudagraph", "flat_fused", "flat_compiled")
very_large_comparison = compare_recipes("very large", left_out=beside if on_gpu else ())
very_large_comparison

# %%
# Which wins where
# ----------------
# :meth:`~optimbench.Comparison.fastest` names the recipe of the least median, and all that are not clearly slower.
import matplotlib.pyplot as plt

results = {
    "few large": few_large_comparison,
    "many small": many_small_comparison,
    "transformer's": transformer_comparison,
    "very large": very_large_comparison,
}
title = ";\n".join(
    f"{name}: {' or '.join(comparison.fastest())} is fastest"
    for name, comparison in results.items()
)
print(title)

figure, axes = plt.subplots(figsize=(7, 4.3), layout="constrained")
for (name, comparison), marker in zip(results.items(), "os^D", strict=True):
    times_us = [row.median_s * 1e6 for row in comparison.rows]
    names = [row.name for row in comparison.rows]
    axes.plot(times_us, names, marker, label=f"{name} tensors")
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
# * :doc:`The price of compiling <plot_09_what_compiling_costs>`, paid before the first step. The column *first call*
#   shows little of it, since the check has filled the compile cache.
