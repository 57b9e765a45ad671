r"""
How it scales, and where the winner changes
===========================================

One step of Adam by up to six recipes, while a model grows a thousandfold and while it is cut into more tensors.

**You will see**

* where a step is bound by launching kernels, and where by moving bytes;
* the fastest recipe at each size, and the fastest of those that need neither flat buffers nor a CUDA graph;
* that the same number of parameters costs more in more tensors, and for which recipes it does not.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# The sizes
# ---------
# First five tensors that grow together, on a GPU from a million parameters to a thousand million. Then a model of ten
# million, cut into up to a thousand tensors. On a CPU all are a hundred times smaller, and cut into at most a hundred.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
on_gpu = device.type == "cuda"
unit = 1_000_000 if on_gpu else 10_000
sizes = [(unit * 10**power, 5) for power in range(4)]
counts = (1, 5, 100, 1000) if on_gpu else (1, 5, 100)
cuts = [(10 * unit, count) for count in counts]
# The tests of this page take two sizes, which share one cut.
if "OPTIMBENCH_QUICK" in os.environ:
    sizes, cuts = [(1_000, 2), (10_000, 2)], [(1_000, 2), (1_000, 4)]


def make_optimizer(n_parameters, n_tensors):
    shapes = [(n_parameters // n_tensors,)] * n_tensors
    return torch.optim.Adam(ob.make_parameters(shapes, device=device), lr=0.01)


# %%
# The recipes
# -----------
# The for-loop is the default on a CPU, foreach on a GPU. Unless the buffers are flat, :doc:`compiling takes the longer
# <plot_09_what_compiling_costs>` the more tensors there are, so ``compiled`` is taken for at most five.
MOST_COMPILED = 5
default = "foreach" if on_gpu else "forloop"
plain = [default, "fused", "compiled"]
recipes = [*plain, "flat_fused", "flat_compiled"]
recipes += ["flat_compiled_cudagraph"] if on_gpu else []

# %%
# All recipes of one size are measured in the same rounds, so all have to fit into memory: parameters, gradients and two
# moments for each recipe, and two sets more for temporaries. What does not fit into the GPU is left out.
if on_gpu:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    most = free_bytes / (4 * 4 * (len(recipes) + 2))
    print("left out:", [size for size, _ in sizes if size > most])
    sizes = [(size, count) for size, count in sizes if size <= most]

# %%
# What it must cost
# -----------------
# Seven numbers of four bytes each are read or written for every parameter. Over the bandwidth of a copy that is a time
# *per parameter* that depends on no size. Where a step takes longer per parameter, it waits for something else.
bandwidth = ob.copy_bandwidth(device)
floor_ps = ob.floor_s(make_optimizer(1000, 5), bandwidth) / 1000 * 1e12
print(f"memory limit: {floor_ps:,.1f} ps a parameter")


# %%
# The same result, then the time
# ------------------------------
# The very steps that are timed take five steps first, with a learning rate that changes, and must agree with the
# default on every parameter. Inductor tries launch settings on copies of what a kernel writes, and makes them in the
# host's memory, which can take seconds, where the GPU's has not been so full before. So we fill that once beforehand.
def compare_recipes(n_parameters, n_tensors):
    if on_gpu:
        torch.empty(4 * (len(recipes) + 2) * n_parameters, device=device)
        torch.cuda.empty_cache()
    steps = {
        recipe: ob.build_step(make_optimizer(n_parameters, n_tensors), recipe)
        for recipe in recipes
        if recipe != "compiled" or n_tensors <= MOST_COMPILED
    }
    groups = [step.optimizer.param_groups[0] for step in steps.values()]
    for _ in range(5):
        for step, group in zip(steps.values(), groups, strict=True):
            step()
            group["lr"] *= 0.9
    for group in groups:
        for pair in zip(group["params"], groups[0]["params"], strict=True):
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5)
    found = ob.compare(steps, baseline=default, min_run_time_s=0.1)
    for step in steps.values():
        step.close()
    return found


comparisons = {size: compare_recipes(*size) for size in dict.fromkeys(sizes + cuts)}
print(f"all recipes agree at all {len(comparisons)} sizes")


# %%
# Where the winner changes
# ------------------------
# Every step that nothing is clearly faster than is named, read from the intervals of the ratios. *Plain* needs neither
# flat buffers nor a graph; more than five tensors are not compiled there. A share above one: a cache keeps data for the
# next step, a CPU updates in place what a copy fetches before it overwrites it, or memory moves a step's bytes faster.
def in_words(size):
    return f"{size[0] / 1e6:g} M in {size[1]}"


def share_of_limit(size, recipe):
    return floor_ps * 1e-12 * size[0] / comparisons[size].row(recipe).median_s


def row_of_table(size):
    found = comparisons[size]
    fastest = found.fastest()
    own_us, best_us = (found.row(r).median_s * 1e6 for r in (default, fastest[0]))
    plain_best, all_best = " or ".join(found.fastest(plain)), " or ".join(fastest)
    share = share_of_limit(size, fastest[0])
    return in_words(size), own_us, plain_best, all_best, best_us, share


winners_by_size = ob.Table(
    name="The fastest recipes by size",
    columns=(
        *("parameters in tensors", f"{default}, µs", "fastest plain one"),
        *("fastest of all", "µs", "share of the limit"),
    ),
    cells=tuple(row_of_table(size) for size in comparisons),
)
winners_by_size

# %%
# Where a line falls, more parameters hardly take more time: the host's part decides. A line along the dashed one is
# bound by memory. In the right panel, a line that rises pays for every tensor.
import collections

import matplotlib.pyplot as plt

figure, panels = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained", sharey=True)
for part, (axes, points) in enumerate(zip(panels, (sizes, cuts), strict=True)):
    for recipe, marker in zip(recipes, "os^Dv*", strict=False):
        taken = [
            (size[part], row.median_s * 1e12 / size[0])
            for size in points
            for row in comparisons[size].rows
            if row.name == recipe
        ]
        axes.plot(*zip(*taken, strict=True), f"{marker}-", label=recipe, alpha=0.8)
    axes.axhline(floor_ps, linestyle="--", color="gray", label="memory limit")
    axes.set(xscale="log", yscale="log")
panels[0].set(xlabel=f"parameters, {sizes[0][1]} tensors", ylabel="ps a parameter")
panels[1].set(xlabel=f"tensors, {cuts[0][0]:,} parameters")
figure.legend(
    *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4
)
won = collections.Counter(w for c in comparisons.values() for w in c.fastest())
[(best, times_won)] = won.most_common(1)
largest, share = in_words(sizes[-1]), share_of_limit(sizes[-1], best)
reach = f"{share:.2f} of" if share < 1 else "beyond"
figure.suptitle(
    f"{best}: fastest or as fast at {times_won} of {len(comparisons)} sizes,\n"
    f"{reach} the memory limit of a copy at {largest} tensors"
)
plt.show()

# %%
# What this does not show
# -----------------------
# * The tensors of a model differ in size; ``python -m optimbench recommend --workload gpt2`` measures such a model.
# * :doc:`Other optimizers <../use_it/plot_14_every_optimizer>`, which move other numbers of bytes.
# * The price of the first call, which grows with the number of tensors unless the buffers are flat.
