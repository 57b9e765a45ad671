r"""
Every scheduler, float and tensor
=================================

Each learning-rate scheduler of PyTorch on a compiled Adam, with the learning rate as a float and as a tensor.

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
# One small parameter is enough: what is compiled how often does not depend on sizes. Ten steps are enough too, since
# the compiler gives up a function at its limit, which is below that.
import os

import torch
from torch.optim import lr_scheduler

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
print(f"recompile limit: {torch._dynamo.config.recompile_limit}")
STEPS = 10

SCHEDULERS = {
    "LambdaLR": lambda opt: lr_scheduler.LambdaLR(opt, lambda step: 0.9**step),
    "MultiplicativeLR": lambda opt: lr_scheduler.MultiplicativeLR(opt, lambda _: 0.9),
    "StepLR": lambda opt: lr_scheduler.StepLR(opt, step_size=3),
    "MultiStepLR": lambda opt: lr_scheduler.MultiStepLR(opt, [2, 5]),
    "ConstantLR": lambda opt: lr_scheduler.ConstantLR(opt, total_iters=5),
    "LinearLR": lambda opt: lr_scheduler.LinearLR(opt, total_iters=STEPS),
    "ExponentialLR": lambda opt: lr_scheduler.ExponentialLR(opt, gamma=0.9),
    "PolynomialLR": lambda opt: lr_scheduler.PolynomialLR(opt, total_iters=STEPS),
    "CosineAnnealingLR": lambda opt: lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS),
    "CosineAnnealingWarmRestarts": lambda opt: lr_scheduler.CosineAnnealingWarmRestarts(
        opt, T_0=5
    ),
    "ChainedScheduler": lambda opt: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(opt), lr_scheduler.ExponentialLR(opt, gamma=0.9)]
    ),
    "SequentialLR": lambda opt: lr_scheduler.SequentialLR(
        opt,
        [lr_scheduler.LinearLR(opt, total_iters=4), lr_scheduler.StepLR(opt, 3)],
        milestones=[4],
    ),
    "ReduceLROnPlateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=1),
    "CyclicLR": lambda opt: lr_scheduler.CyclicLR(opt, 0.001, 0.01, step_size_up=4),
    "OneCycleLR": lambda opt: lr_scheduler.OneCycleLR(opt, 0.01, total_steps=STEPS + 1),
    "CyclicLR, cycle_momentum=False": lambda opt: lr_scheduler.CyclicLR(
        opt, 0.001, 0.01, step_size_up=4, cycle_momentum=False
    ),
    "OneCycleLR, cycle_momentum=False": lambda opt: lr_scheduler.OneCycleLR(
        opt, 0.01, total_steps=STEPS + 1, cycle_momentum=False
    ),
}
tried = {name.split(",")[0] for name in SCHEDULERS}
untried = sorted(set(lr_scheduler.__all__) - tried - {"LRScheduler"})
print(f"{len(tried)} schedulers tried; others in this release: {untried or 'none'}")

# The automated tests of this page set OPTIMBENCH_QUICK to run a few of them.
quick = "OPTIMBENCH_QUICK" in os.environ
if quick:
    names = (
        "ConstantLR",
        "ExponentialLR",
        "OneCycleLR",
        "OneCycleLR, cycle_momentum=False",
    )
    SCHEDULERS = {name: SCHEDULERS[name] for name in names}

# %%
# The ways to hold the learning rate
# ----------------------------------
# ``foreach=True`` handles all tensors at once and is the default on a GPU, ``foreach=False`` takes them one after the
# other and is the default on a CPU. With a tensor ``foreach=True`` needs ``capturable=True``, which eager Adam accepts
# on a GPU only.
on_gpu = {"capturable": True} if device.type == "cuda" else {}
WAYS = {
    "float, foreach=True": {"foreach": True},
    "float, foreach=False": {"foreach": False},
    "tensor, foreach=False": {"foreach": False, **on_gpu},
    "tensor, foreach=True": {"foreach": True, **on_gpu},
}
if device.type != "cuda":
    del WAYS["tensor, foreach=True"]
    print("a tensor with foreach=True needs a CUDA device; not measured here")


def make_adam(way, **options):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.rand(4, 4, device=device))
    weight.grad = torch.rand(4, 4, device=device)
    lr = torch.tensor(0.01, device=device) if way.startswith("tensor") else 0.01
    return torch.optim.Adam([weight], lr=lr, **options)


# %%
# The scheduler is built before anything is compiled: it wraps ``opt.step``, and can no longer do so where that has been
# replaced by a compiled function. We compile a function that calls it.
#
# The counts below are of the backend ``"aot_eager"``. It relies on the same values as Inductor, the default, and
# generates no code, so that more than a hundred compiles take a minute or so. That both count the same is checked at
# the end.


def run(opt, sched, backend=None, n_steps=STEPS):
    """Take the steps; return their learning rates and, if compiled, the log."""

    def step():
        opt.step()

    learning_rates = []
    with ob.capture_recompiles() as capture:
        if backend:
            step = capture.watch(torch.compile(step, backend=backend))
        for _ in range(n_steps):
            step()
            learning_rates.append(float(opt.param_groups[0]["lr"]))
            if isinstance(sched, lr_scheduler.ReduceLROnPlateau):
                sched.step(1.0)  # A loss that never improves.
            else:
                sched.step()
    return learning_rates, capture.log


def parameter(opt):
    return opt.param_groups[0]["params"][0]


# %%
# All of them
# -----------
# Each run is compared with the eager one before it is counted: the same learning rate in every step and the same
# parameters. Without that, a step that had kept an old learning rate would pass for one that needs no new compile.
logs, different, rows, largest = {}, {}, [], 0.0
for name, make_scheduler in SCHEDULERS.items():
    eager_opt = make_adam("float", foreach=True)
    eager_lrs, _ = run(eager_opt, make_scheduler(eager_opt))
    counts = []
    for way, options in WAYS.items():
        opt = make_adam(way, **options)
        lrs, _log = run(opt, make_scheduler(opt), backend="aot_eager")
        differences = [abs(a - b) for a, b in zip(lrs, eager_lrs, strict=True)]
        largest = max(largest, *differences)
        torch.testing.assert_close(parameter(opt), parameter(eager_opt))
        since = f", eager from {_log.eager_since_call}" if _log.limit_hit else ""
        counts.append(f"{_log.n_compiles}{since}")
        logs[name, way] = _log
    different[name] = len(set(eager_lrs))
    rows.append((name, different[name], *counts))

print(f"largest difference between two learning rates: {largest:.1e}")
assert largest < 1e-7, "a compiled step had another learning rate than the eager one"

compiles_by_scheduler = ob.Table(
    name=f"Compiles of Adam's step in {STEPS} steps, backend aot_eager",
    columns=("scheduler", "different lr", *WAYS),
    cells=tuple(rows),
    remarks=(
        "Eager from N: the limit was passed in step N, and no compile fits since.",
    ),
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
for (name, way), _log in logs.items():
    if way.startswith("tensor") and name not in ("CyclicLR", "OneCycleLR"):
        assert _log.n_compiles == 1, (name, way)
    if way == "float, foreach=True":
        assert _log.n_compiles == min(different[name], _log.recompile_limit), name

one_cycle_log = logs["OneCycleLR", "tensor, foreach=False"]
assert one_cycle_log.n_recompiles > 0
assert any("betas" in why for c in one_cycle_log.compilations for why in c.reasons)
one_cycle_log

# %%
# Which backend was counted
# -------------------------
# A guard exists where the compiled code relies on a value, and backends differ in what they rely on. So a count holds
# for the backend it was taken with. The backend ``"eager"``, which only records the operations, is quick and may count
# fewer than the default would; ``"aot_eager"`` may stand for Inductor only where it counts the same.
FEW = 2 if quick else 3


def make_sgd():
    weight = parameter(make_adam("float"))
    return torch.optim.SGD([weight], lr=0.01, momentum=0.9, foreach=True)


MAKERS = {
    "Adam, float": lambda: make_adam("float", foreach=True),
    "Adam, tensor": lambda: make_adam("tensor", **on_gpu),
    "SGD with momentum, float": make_sgd,
}
BACKENDS = ("eager", "aot_eager", "inductor")


def compiles_with(backend, make):
    opt = make()
    sched = lr_scheduler.ExponentialLR(opt, gamma=0.9)
    return run(opt, sched, backend, FEW)[1].n_compiles


compiles_by_backend = ob.Table(
    name=f"Compiles in {FEW} steps with ExponentialLR, by backend",
    columns=("optimizer", *BACKENDS),
    cells=tuple(
        (name, *[compiles_with(backend, make) for backend in BACKENDS])
        for name, make in MAKERS.items()
    ),
)
for name, _, aot_eager, inductor in compiles_by_backend.cells:
    assert aot_eager == inductor, f"{name}: the backends count differently"
compiles_by_backend

# %%
# What this does not show
# -----------------------
# Other optimizers rely on other values: their counts are their own. Nothing was timed here; a step that is compiled
# once is not yet a fast one. And the scheduler's own arithmetic runs in Python, outside the compiled function.
