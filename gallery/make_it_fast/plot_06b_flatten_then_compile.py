r"""
Flatten, then compile
=====================

From the published recipe to the memory limit in three changes: a tensor as the learning rate, one buffer for all
parameters, and a CUDA graph.

**You will see**

* what each of the three changes gains, one after the other;
* how a model trains on flat buffers without noticing;
* a checkpoint that goes to plain PyTorch and back;
* what flat buffers cannot do.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Sixty tensors of the sizes that a transformer has; on a CPU ten, a sixteenth as large.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
n_blocks, width = (6, 768) if device.type == "cuda" else (1, 192)
if "OPTIMBENCH_QUICK" in os.environ:
    n_blocks, width = 1, 16


def make_model():
    torch.manual_seed(0)
    block = [
        torch.nn.LayerNorm(width),
        torch.nn.Linear(width, 3 * width),
        torch.nn.Linear(3 * width, width),
        torch.nn.Linear(width, 4 * width),
        torch.nn.Linear(4 * width, width),
    ]
    layers = [layer for _ in range(n_blocks) for layer in block]
    model = torch.nn.Sequential(*[torch.nn.Sequential(layer) for layer in layers]).to(
        device
    )
    model(torch.rand(width, device=device)).sum().backward()
    return model


def make_optimizer():
    return torch.optim.Adam(make_model().parameters(), lr=0.01)


opt = make_optimizer()
n_tensors = len(opt.param_groups[0]["params"])
floor_us = ob.floor_s(opt, ob.copy_bandwidth(device)) * 1e6
print(f"{n_tensors} tensors; moving their bytes takes at least {floor_us:.1f} µs")

# %%
# The published recipe guards every tensor: before each step the host checks that all of them are what they were, and
# that grows with their number. One tensor needs one check and one kernel. So we lay all parameters into one buffer,
# all gradients into another, let the model's own parameters be views of them, and give the optimizer the one tensor.
# :func:`optimbench.build_step` does that, and checks that it does the same.
recipes = [
    r for r in ob.possible_recipes(opt) if r.startswith(("compiled", "flat_compiled"))
]
for verdict in ob.check_sameness(opt, recipes):
    print(
        f"{verdict.recipe}: {'same as the for-loop' if verdict.is_same else verdict.reason}"
    )
    assert verdict.is_same

# %%
# Three changes, three gains
# --------------------------
published_opt = make_optimizer()


@torch.compile
def published():
    published_opt.step()


three_changes = ob.compare(
    {
        "eager default": make_optimizer().step,
        "published": published,
        **{recipe: ob.build_step(make_optimizer(), recipe) for recipe in recipes},
    },
    baseline="published",
    min_run_time_s=0.1 if "OPTIMBENCH_QUICK" in os.environ else 1.0,
)
three_changes

# %%
for name in recipes:
    share = floor_us / 1e6 / three_changes.row(name).median_s
    print(f"{three_changes.conclusion(name)} Share of the memory limit: {share:.2f}")

# %%
# Training on it
# --------------
# The step is called instead of ``opt.step``; gradients are set to zero in place, so that they stay views of their
# buffer. The model is used as before.
target = torch.zeros(width, device=device)


def losses_of(model, step, zero_grad):
    zero_grad()
    losses = []
    for _ in range(5):
        loss = (model(torch.ones(width, device=device)) - target).square().mean()
        loss.backward()
        step()
        zero_grad()
        losses.append(loss.item())
    return losses


model = make_model()
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
step = ob.build_step(opt, "flat_compiled")
flat_losses = losses_of(model, step, step.zero_grad)
eager_model = make_model()
eager_opt = torch.optim.Adam(eager_model.parameters(), lr=1e-4)
eager_losses = losses_of(eager_model, eager_opt.step, eager_opt.zero_grad)
print("flat: ", ", ".join(f"{loss:.6f}" for loss in flat_losses))
print("eager:", ", ".join(f"{loss:.6f}" for loss in eager_losses))
torch.testing.assert_close(flat_losses, eager_losses, rtol=1e-3, atol=1e-6)

# %%
# A checkpoint
# ------------
# The optimizer's state comes out in the form that plain PyTorch uses, one entry a parameter, and another optimizer
# goes on from it.
import io

checkpoint = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, checkpoint)
checkpoint.seek(0)
loaded = torch.load(checkpoint)

plain_model = make_model()
plain_opt = torch.optim.Adam(plain_model.parameters(), lr=1e-4)
plain_model.load_state_dict(loaded["model"])
plain_opt.load_state_dict(loaded["optimizer"])
for each_model, each_step in ((model, step), (plain_model, plain_opt.step)):
    for parameter in each_model.parameters():
        parameter.grad = (
            parameter.grad
            if parameter.grad is not None
            else torch.zeros_like(parameter)
        )
        parameter.grad.zero_()
    (each_model(torch.ones(width, device=device)) - target).square().mean().backward()
    each_step()
for parameter, expected in zip(
    model.parameters(), plain_model.parameters(), strict=True
):
    torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-6)
print("the sixth step is the same in plain PyTorch, from the checkpoint")

# %%
# What flat buffers cannot do
# ---------------------------
# An update that mixes the elements of a tensor would mix those of different parameters. Such optimizers are refused,
# with the reason.
matrices = [
    parameter for parameter in make_model().parameters() if parameter.dim() == 2
]
for refused in (torch.optim.Muon(matrices), torch.optim.LBFGS(matrices)):
    print(f"{type(refused).__name__}: {ob.why_not(refused, 'flat_compiled')}")

# %%
# What this does not show
# -----------------------
# * Parameters in a buffer cannot move: ``model.to(...)`` after the first step is refused at the next one.
# * Freezing layers, adding param groups and sharding all change which tensors belong together. Build the step again.
