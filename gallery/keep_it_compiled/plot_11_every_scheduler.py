r"""
Every scheduler, float and tensor
=================================

Each learning-rate scheduler of ``lr_scheduler`` on a compiled Adam, with the learning rate as a float and as a tensor.

**You will see**

* how often the step is compiled under each scheduler, and from which step on it is eager for good;
* that a tensor is enough for all schedulers but two, and what those two need besides;
* that every compiled run has the learning rates and parameters of the eager one;
* why such counts must be taken with the backend one means.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# The schedulers
# --------------
# One small parameter is enough, and ten steps: the compiler gives up a function at a limit that is below ten. We halve
# it here, to take half as long. :doc:`Elsewhere <../start/plot_02_compiled_optimizers_and_lr_schedulers>` it is whole.
import copy
import os
from functools import partial

import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, ReduceLROnPlateau

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests take few steps and schedulers.
torch._dynamo.config.recompile_limit //= 2
STEPS, LIMIT = 4 if quick else 10, torch._dynamo.config.recompile_limit
make_parameters = partial(ob.make_parameters, [(4, 4)], device=device)
SCHEDULERS = {
    "LambdaLR": partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 0.9**step),
    "MultiplicativeLR": partial(lr_scheduler.MultiplicativeLR, lr_lambda=lambda _: 0.9),
    "StepLR": partial(lr_scheduler.StepLR, step_size=3),
    "MultiStepLR": partial(lr_scheduler.MultiStepLR, milestones=[2, 5]),
    "ConstantLR": partial(lr_scheduler.ConstantLR, total_iters=5),
    "LinearLR": partial(lr_scheduler.LinearLR, total_iters=STEPS),
    "PolynomialLR": partial(lr_scheduler.PolynomialLR, total_iters=STEPS),
    "CosineAnnealingLR": partial(lr_scheduler.CosineAnnealingLR, T_max=STEPS),
    "CosineAnnealingWarmRestarts": partial(CosineAnnealingWarmRestarts, T_0=5),
    "ChainedScheduler": lambda opt: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(opt), lr_scheduler.ExponentialLR(opt, gamma=0.9)]
    ),
    "SequentialLR": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.LinearLR(opt), lr_scheduler.StepLR(opt, 3)], milestones=[4]
    ),
    "ReduceLROnPlateau": partial(ReduceLROnPlateau, patience=1),  # The loss stays 1.
    "CyclicLR": partial(
        lr_scheduler.CyclicLR, base_lr=1e-3, max_lr=1e-2, step_size_up=4
    ),
    "ExponentialLR": partial(lr_scheduler.ExponentialLR, gamma=0.9),
    "OneCycleLR": partial(lr_scheduler.OneCycleLR, max_lr=0.01, total_steps=STEPS + 1),
}
untried = sorted(set(lr_scheduler.__all__) - {"LRScheduler", *SCHEDULERS}) or "none"
print(f"{len(SCHEDULERS)} schedulers tried; others in this release: {untried}")
for name in ("CyclicLR", "OneCycleLR"):
    fixed = partial(SCHEDULERS[name], cycle_momentum=False)
    SCHEDULERS[f"{name}, cycle_momentum=False"] = fixed
if quick:
    SCHEDULERS = dict(list(SCHEDULERS.items())[-4:])

# %%
# The ways to hold the learning rate
# ----------------------------------
# ``foreach=True`` handles all tensors at once, the default on a GPU; ``foreach=False`` takes them one after the other,
# the default on a CPU. A tensor with ``foreach=True`` needs ``capturable=True``, for eager Adam possible on a GPU only.
tensor = {"lr": torch.tensor(0.01, device=device), "capturable": device.type == "cuda"}
float_foreach = {"lr": 0.01, "foreach": True}
WAYS = {
    "float, foreach=True": float_foreach,
    "float, foreach=False": {"lr": 0.01, "foreach": False},
    "tensor, foreach=False": {**tensor, "foreach": False},
    "tensor, foreach=True": {**tensor, "foreach": True},
}
if device.type != "cuda":
    del WAYS["tensor, foreach=True"]
    print("a tensor with foreach=True needs a CUDA device; not measured here")


# %%
# Every compiled run is compared with an eager one beside it, whose learning rate is a float: a step that kept an old
# learning rate would need no new compile either. The scheduler is built before anything is compiled: it wraps
# ``opt.step``, and cannot where that is a compiled function already. We compile a function that calls it.
def run(make_scheduler, options, backend, kind=torch.optim.Adam, calls=STEPS):
    """Take the steps; return how many learning rates they had, and the log."""
    # A copy: a scheduler changes the tensor in place.
    choices = (copy.deepcopy(options), {**options, "lr": 0.01})
    opts = [kind(make_parameters(), **each) for each in choices]
    scheds = [make_scheduler(opt) for opt in opts]
    (opt, eager_opt), lrs = opts, []

    def step():
        opt.step()

    def after_each(_):
        eager_opt.step()
        lrs.append([float(each.param_groups[0]["lr"]) for each in opts])
        for sched in scheds:
            sched.step(*[1.0] if isinstance(sched, ReduceLROnPlateau) else [])

    log = ob.log_compiles(step, calls=calls, after_each=after_each, backend=backend)
    assert all(abs(compiled - eager) < 1e-7 for compiled, eager in lrs)
    torch.testing.assert_close(*[each.param_groups[0]["params"] for each in opts])
    return len({eager for _, eager in lrs}), log


# %%
# All of them
# -----------
# The backend is ``"aot_eager"``, which generates no code. That Inductor counts the same is checked at the end.
runs, rows = {}, []
for name, make_scheduler in SCHEDULERS.items():
    counts = []
    for way, options in WAYS.items():
        n_lrs, _log = runs[name, way] = run(make_scheduler, options, "aot_eager")
        since = f", eager from {_log.eager_since_call}" if _log.limit_hit else ""
        counts.append(f"{_log.n_compiles}{since}")
    rows.append((name, n_lrs, *counts))
compiles_by_scheduler = ob.Table(
    name=f"Compiles of Adam's step in {STEPS} steps, backend aot_eager",
    columns=("scheduler", "different lr", *WAYS),
    cells=tuple(rows),
    remarks=(f"Eager from N: past the limit, {LIMIT}, and no compile fits since.",),
)
compiles_by_scheduler

# %%
# Reading the table
# -----------------
# * A float with ``foreach=True`` is compiled once for each different learning rate, up to the limit; then the step is
#   eager, without a word.
# * A float with ``foreach=False`` is compiled twice: the second time the learning rate becomes an input.
# * A tensor is compiled once.
# * The two that cycle the momentum are exceptions: for Adam they set ``betas``, two Python floats, in every step. A
#   tensor for the learning rate does not help there, and ``cycle_momentum=False`` does.
for (name, way), (n_lrs, _log) in runs.items():
    most = {"float, foreach=True": LIMIT, "float, foreach=False": 2}.get(way, 1)
    if name not in ("CyclicLR", "OneCycleLR") or way == "float, foreach=True":
        assert _log.n_compiles == min(n_lrs, most), (name, way)
_, one_cycle_log = runs["OneCycleLR", "tensor, foreach=False"]
assert any("betas" in why for c in one_cycle_log.compilations for why in c.reasons)
one_cycle_log

# %%
# Which backend was counted
# -------------------------
# A guard exists where the compiled code relies on a value, and backends differ in what they rely on. The backend
# ``"eager"`` only records the operations, and may count fewer compiles than the default would; ``"aot_eager"`` may
# stand for Inductor only where it counts the same.
BACKENDS = ("eager", "aot_eager", "inductor")
make_scheduler = SCHEDULERS["ExponentialLR"]
rows = []
for name, kind, options in (
    ("Adam, float", torch.optim.Adam, float_foreach),
    ("Adam, tensor", torch.optim.Adam, tensor),
    ("SGD with momentum, float", torch.optim.SGD, {**float_foreach, "momentum": 0.9}),
):
    _logs = [run(make_scheduler, options, each, kind, calls=3)[1] for each in BACKENDS]
    rows.append((name, *[_log.n_compiles for _log in _logs]))
    assert rows[-1][2] == rows[-1][3], f"{name}: the backends count differently"
compiles_by_backend = ob.Table(
    name="Compiles in 3 steps with ExponentialLR, by backend",
    columns=("optimizer", *BACKENDS),
    cells=tuple(rows),
)
compiles_by_backend

# %%
# What this does not show
# -----------------------
# Other optimizers rely on other values: their counts are their own. Nothing was timed here; a step that is compiled
# once is not yet a fast one. And the scheduler's own arithmetic runs in Python, outside the compiled function.
