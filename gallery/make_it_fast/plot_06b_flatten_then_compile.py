r"""
Flatten, then compile
=====================

From the published recipe towards the memory limit in three changes: a tensor as the learning rate, one buffer for all
parameters, and on a GPU a CUDA graph.

**You will see**

* what each change gains over the one before it;
* how a model trains on flat buffers without noticing, also with several param groups;
* a checkpoint of it from which plain PyTorch goes on;
* what flat buffers cannot do.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Twenty tensors of the sizes that a transformer has; on a CPU ten, a sixteenth as large.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
n_blocks, width, run_time_s = *((2, 768) if device.type == "cuda" else (1, 192)), 0.5
if "OPTIMBENCH_QUICK" in os.environ:  # The tests of this page.
    n_blocks, width, run_time_s = 1, 16, 0.1


def make_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    for _ in range(n_blocks):
        model.append(torch.nn.LayerNorm(width))
        for narrow, wide in ((width, 3 * width), (width, 4 * width)):
            model.append(torch.nn.Linear(narrow, wide))
            model.append(torch.nn.Linear(wide, narrow))
    model.to(device)
    model(torch.rand(width, device=device)).sum().backward()
    return model


def make_optimizer():
    return torch.optim.Adam(make_model().parameters(), lr=0.01)


opt = make_optimizer()
n_tensors = len(opt.param_groups[0]["params"])
assert n_tensors == 10 * n_blocks
floor_us = ob.floor_s(opt, ob.copy_bandwidth(device)) * 1e6
print(f"{n_tensors} tensors; moving their bytes takes at least {floor_us:.1f} µs")

# %%
# The published recipe guards every tensor: before each step the host checks that all of them are what they were, and
# that grows with their number. One tensor needs one check and one large kernel. So we lay all parameters in one buffer,
# all gradients into another, let the model's own parameters be views of them, and give the optimizer the one tensor.
# :func:`optimbench.build_step` does that, and :func:`optimbench.check_sameness` compares each recipe with the for-loop.
recipes = [r for r in ob.possible_recipes(opt) if "compiled" in r]
for verdict in ob.check_sameness(opt, recipes):
    assert verdict.is_same, f"{verdict.recipe}: {verdict.reason}"
print("the same as the for-loop:", ", ".join(recipes))

# %%
# Three changes, three gains
# --------------------------
published_opt = make_optimizer()


@torch.compile
def published():
    published_opt.step()


steps = {"eager default": make_optimizer().step, "published": published}
steps |= {recipe: ob.build_step(make_optimizer(), recipe) for recipe in recipes}
three_changes = ob.compare(steps, baseline="published", min_run_time_s=run_time_s)
three_changes

# %%
# Each against the one before it. First calls do not compare: all but the published step were compiled by the check.
from optimbench.comparison import compare_measurements

CHANGES = {
    "compiled": "a tensor as the learning rate",
    "flat_compiled": "one buffer for all parameters",
    "flat_compiled_cudagraph": "a CUDA graph",
}
rows, before = [], "published"
for name in [name for name in CHANGES if name in recipes]:
    found = compare_measurements(three_changes.rows, baseline=before).speedup(name)
    gain = f"{found.wall.verdict} {found.wall.interval}"
    time_us, before = three_changes.row(name).median_s * 1e6, name
    rows.append((CHANGES[name], gain, time_us, floor_us / time_us))

gains = ob.Table(
    name="What each change gains over the step before it",
    columns=("change", "gain", "µs", "share of the memory limit"),
    cells=tuple(rows),
)
gains


# %%
# Training on it
# --------------
# The step is called instead of ``opt.step``; gradients are set to zero in place, so that they stay views of their
# buffer. The model is used as before.
def losses_of(model, step, zero_grad, n_steps=5):
    losses = []
    for _ in range(n_steps):
        zero_grad()
        loss = model(torch.ones(width, device=device)).square().mean()
        loss.backward()
        step()
        losses.append(loss.item())
    return losses


model = make_model()
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
step = ob.build_step(opt, "flat_compiled")
flat_losses = losses_of(model, step, step.zero_grad)
eager_model = make_model()
eager_opt = torch.optim.Adam(eager_model.parameters(), lr=1e-4)
eager_losses = losses_of(eager_model, eager_opt.step, eager_opt.zero_grad)
print("losses on flat buffers:", ", ".join(f"{loss:.6f}" for loss in flat_losses))
torch.testing.assert_close(flat_losses, eager_losses, rtol=1e-3, atol=1e-6)

# %%
# A checkpoint
# ------------
# The optimizer's state comes out as plain PyTorch has it, one entry a parameter, and another optimizer goes on from it.
import io

checkpoint = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, checkpoint)
checkpoint.seek(0)
loaded = torch.load(checkpoint)

plain_model = make_model()
plain_opt = torch.optim.Adam(plain_model.parameters(), lr=1e-4)
plain_model.load_state_dict(loaded["model"])
plain_opt.load_state_dict(loaded["optimizer"])
losses_of(model, step, step.zero_grad, n_steps=1)
losses_of(plain_model, plain_opt.step, plain_opt.zero_grad, n_steps=1)
pair = (list(each.parameters()) for each in (model, plain_model))
torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-6)
print("the sixth step is the same in plain PyTorch, from the checkpoint")

# %%
# Param groups
# ------------
# Each group gets a buffer of its own, for it has options of its own. Here weights decay, biases and norms do not.
parameters = list(make_model().parameters())
groups = [
    {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
    {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
]
(verdict,) = ob.check_sameness(torch.optim.AdamW(groups), recipes[-1:])
assert verdict.is_same, verdict.reason
print(f"{verdict.recipe}: the same as the for-loop, with {len(groups)} groups")

# %%
# What flat buffers cannot do
# ---------------------------
# An update that mixes the elements of a tensor would mix those of different parameters. Such optimizers are refused,
# with the reason, and so are those that cannot be compiled at all.
matrices = groups[0]["params"]
for refused in (torch.optim.Muon(matrices), torch.optim.LBFGS(matrices)):
    print(f"{type(refused).__name__}: {ob.why_not(refused, 'flat_compiled')}")

# %%
# What this does not show
# -----------------------
# * Parameters in a buffer cannot move: ``model.to(...)`` after the first step is refused at the next one.
# * Freezing layers, adding param groups and sharding all change which tensors belong together. Build the step again.
