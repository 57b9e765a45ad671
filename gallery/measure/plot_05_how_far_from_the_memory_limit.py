r"""
How far from the memory limit?
==============================

Every way to take a step of Adam, against the time that moving its bytes must take.

**You will see**

* how many bytes a step reads and writes at least, counted from what the optimizer keeps;
* how fast this machine copies memory, measured on the spot;
* which share of that limit each way to step reaches.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Ten tensors of a million numbers each. On a CPU and in the tests of this page they are smaller: a tenth and a
# thousandth of that.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
scale = 1.0 if device.type == "cuda" else 0.1
if "OPTIMBENCH_QUICK" in os.environ:
    scale = 0.001


def make_optimizer():
    parameters = ob.make_parameters("ten_layers", device=device, scale=scale)
    return torch.optim.Adam(parameters, lr=0.01)


# %%
# What a step must cost
# ---------------------
# An optimizer that works element by element reads each parameter, its gradient and each tensor of its state once, and
# writes all but the gradient once. :func:`optimbench.bytes_per_step` counts that from the optimizer's own settings.
opt = make_optimizer()
n_parameters = sum(p.numel() for p in opt.param_groups[0]["params"])
n_bytes = ob.bytes_per_step(opt)
print(f"{n_parameters:,} parameters, {n_bytes:,} bytes a step")
print(f"{n_bytes / n_parameters:.0f} bytes a parameter")

# %%
# How fast bytes can be moved is measured by copying a tensor that no cache can hold. Both directions count: what is
# read and what is written.
bandwidth = ob.copy_bandwidth(device)
bandwidth

# %%
# Bytes over bandwidth is the floor. It holds only for what does not fit into a cache; where everything fits, a step
# that is repeated at once, as when it is measured, may well be faster. On a CPU it is no hard floor in any case: a copy
# may have to read the memory that it overwrites first, which is not counted, and a step that writes in place has read
# it anyway.
floor_s = ob.floor_s(opt, bandwidth)
print(f"floor: {floor_s * 1e6:.1f} µs a step")
print(ob.cache_note(opt) or "No GPU's cache is known to hold all of it.")

# %%
# The same result first
# ---------------------
# Each recipe takes ten steps from the same start, with gradients and a learning rate that change every time, and is
# compared with the plain for-loop: parameters, moments, step counts. What differs is not timed.
verdicts = ob.check_sameness(opt)
sameness = ob.Table(
    name="Largest difference from the for-loop, as a share of what rounding explains",
    columns=("recipe", "difference", "where", "same"),
    cells=tuple(
        (v.recipe, v.difference, v.where, "yes" if v.is_same else f"no: {v.reason}")
        for v in verdicts
    ),
)
assert all(verdict.is_same for verdict in verdicts)
sameness

# %%
# Measured, beside the limit
# --------------------------
# Recipes that are not possible here are left out; on a CPU those are the CUDA graphs.
for recipe in ("fused_cudagraph", "compiled_cudagraph", "flat_compiled_cudagraph"):
    problem = ob.why_not(opt, recipe)
    print(f"{recipe}: {problem or 'possible'}")

steps = {
    recipe: ob.build_step(make_optimizer(), recipe)
    for recipe in ob.possible_recipes(opt)
}
comparison = ob.compare(
    steps,
    baseline="foreach",
    min_run_time_s=0.1 if "OPTIMBENCH_QUICK" in os.environ else 0.5,
)
comparison

# %%
# The share of the floor is the one number that says how much is left to gain, on any machine. A share above one means
# that the floor did not apply: caches helped, or on a CPU the copy moved more than was counted. Where kernels reach a
# larger share than the wall time does, the device waits for the host.
shares = ob.Table(
    name="Share of the memory limit",
    columns=("recipe", "wall [µs]", "share of wall time", "share of kernel time"),
    cells=tuple(
        (
            row.name,
            row.median_s * 1e6,
            floor_s / row.median_s,
            floor_s / row.kernel_time_s if row.kernel_time_s else None,
        )
        for row in sorted(comparison.rows, key=lambda row: row.median_s)
    ),
    remarks=(
        f"The floor is {floor_s * 1e6:.1f} µs: {n_bytes:,} bytes at"
        f" {bandwidth.bytes_per_s / 1e9:,.0f} GB/s.",
    ),
)
shares

# %%
import matplotlib.pyplot as plt

rows = sorted(comparison.rows, key=lambda row: -row.median_s)
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.barh([row.name for row in rows], [row.median_s * 1e6 for row in rows])
axes.axvline(floor_s * 1e6, linestyle="--", color="tab:red", label="memory limit")
axes.set(xscale="log", xlabel="µs a step")
fastest = rows[-1]
share = floor_s / fastest.median_s
finding = f"reaches {share:.0%} of the memory limit"
if share > 1:
    finding = "is faster than memory is copied: the limit does not apply"
axes.set_title(f"Adam: {fastest.name} {finding}")
axes.legend()
plt.show()

# %%
# What this does not show
# -----------------------
# * A floor from the copy bandwidth is a floor for large tensors. For many small ones the launches decide, and the next
#   pages are about them.
# * Fewer bytes are another way to be faster: parameters or moments in a smaller type move half as much.
