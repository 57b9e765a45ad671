r"""
Compiled optimizers and learning-rate schedulers
================================================

A compiled step with a learning rate that changes every iteration: as a Python float, and as a tensor.

**You will see**

* the learning rate step by step, and the same parameters as the eager step gives;
* no recompile with a tensor, with the proof that something was compiled at all;
* the recompile log with a float: how many, why, and what happens at the limit;
* four mistakes that PyTorch does not always tell you about.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Two small layers are enough: what is compiled how often does not depend on their size.
import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")


def make_parameters():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *[torch.nn.Linear(16, 16, bias=False) for _ in range(2)]
    ).to(device)
    model(torch.rand(16, device=device)).sum().backward()
    return list(model.parameters())


# %%
# A tensor as the learning rate
# -----------------------------
# ``LinearLR`` raises the learning rate to its full value over five steps. We give :class:`~torch.optim.Adam` a tensor,
# which the scheduler changes in place, and compile one function that calls both. To the compiler a tensor is data: its
# value may change without a new compile.
from torch.optim.lr_scheduler import LinearLR


def make_step(lr, total_iters=5, **options):
    opt = torch.optim.Adam(make_parameters(), lr=lr, **options)
    sched = LinearLR(opt, total_iters=total_iters)

    def step():
        opt.step()
        sched.step()

    return opt, step


def on_device(lr):
    return torch.tensor(lr, device=device)


# A learning rate on the device lets Adam keep all of its arithmetic there, which `capturable` asks for.
on_gpu = {"capturable": True} if device.type == "cuda" else {}
opt, step = make_step(on_device(0.01), **on_gpu)
eager_opt, eager_step = make_step(0.01)

with ob.capture_recompiles() as capture:
    compiled_step = capture.watch(torch.compile(step))
    lr_steps = []
    for number in range(1, 6):
        compiled_step()
        eager_step()
        lr_steps.append(
            (number, float(opt.param_groups[0]["lr"]), eager_opt.param_groups[0]["lr"])
        )

lr_trace = ob.Table(
    name="The learning rate after each step",
    columns=("step", "compiled, tensor", "eager, float"),
    cells=tuple(lr_steps),
)
lr_trace

# %%
# Counting recompiles is not enough: a step that kept using an old learning rate would not recompile either. So we
# compare the parameters with those of the eager step.
for parameter, expected in zip(
    opt.param_groups[0]["params"], eager_opt.param_groups[0]["params"], strict=True
):
    torch.testing.assert_close(parameter, expected)
assert all(abs(compiled - eager) < 1e-8 for _, compiled, eager in lr_steps)

tensor_log = capture.log
assert tensor_log.n_compiles >= 1, (
    "nothing was compiled, so no recompile would mean nothing"
)
assert tensor_log.n_recompiles == 0
tensor_log

# %%
# A float as the learning rate
# ----------------------------
# A Python float is part of the compiled program. The compiler writes down a *guard*: this code is for a learning rate
# of 0.0033. The scheduler changes it, the guard fails, and the step is compiled again. Since that costs seconds every
# time, the compiler gives up at a limit (``torch._dynamo.config.recompile_limit``). How soon depends on Adam's
# implementation. ``foreach=True`` handles all tensors at once and is the default on a GPU.
#
# ``torch._logging.set_logs(recompiles=True)`` makes PyTorch print every recompile; the environment variable
# ``TORCH_LOGS=recompiles`` does the same from outside, and other words show the compiler's graphs, its fusion
# decisions or the generated code. Inside :func:`optimbench.capture_recompiles` the same records are collected instead
# of printed, with the reasons in words.
torch._logging.set_logs(recompiles=True)
CALLS = 12


def log_of(**options):
    _, step = make_step(0.01, total_iters=CALLS, **options)
    with ob.capture_recompiles() as capture:
        watched = capture.watch(torch.compile(step))
        for _ in range(CALLS):
            watched()
    return capture.log


foreach_log = log_of(foreach=True)
foreach_log

# %%
# From that call on the step is eager, and nothing says so: it is slow again, after all those compiles.
#
# ``foreach=False`` handles one tensor after the other and is the default on a CPU. Here the compiler notices at the
# second value that the learning rate changes, and turns it into an input of the program.
single_log = log_of(foreach=False)
single_log

# %%
print(
    f"recompiles in {CALLS} steps: foreach=True {foreach_log.n_recompiles}, foreach=False {single_log.n_recompiles}"
)
print(
    f"limit: {foreach_log.recompile_limit}; passed with foreach=True: {foreach_log.limit_hit}"
)
assert foreach_log.n_recompiles > single_log.n_recompiles

# %%
# So "recompiles at every iteration" holds for one implementation and not for the other, and the price of the first is
# higher than it says. The rule is the same for both: what is not a tensor, changes between iterations and takes part
# in the computation belongs into a tensor.
#
# Four mistakes
# -------------
# **A scheduler built after** ``opt.step`` **was replaced.** The scheduler wants to wrap a method and finds a function.
# Build the scheduler first, or leave ``opt.step`` alone and compile a function that calls it, as above.
opt = torch.optim.Adam(make_parameters(), lr=0.01)
opt.step = torch.compile(opt.step)
try:
    LinearLR(opt)
except AttributeError as error:
    print(f"AttributeError: {error}")

# %%
# **A tensor learning rate with** ``foreach=True`` **and without** ``capturable=True``.
try:
    torch.optim.Adam(make_parameters(), lr=on_device(0.01), foreach=True)
except ValueError as error:
    print(f"ValueError: {error}")

# %%
# **One tensor for two optimizers.** Both schedulers change it in place, so it changes twice in every step.
shared = on_device(1.0)
optimizers = [torch.optim.Adam(make_parameters(), lr=shared) for _ in range(2)]
schedulers = [
    torch.optim.lr_scheduler.ExponentialLR(each, gamma=0.5) for each in optimizers
]
for each, sched in zip(optimizers, schedulers, strict=True):
    each.step()
    sched.step()
print(f"halved once by each of two schedulers: {float(shared)}")
assert float(shared) == 0.25

# %%
# **A tensor learning rate in the eager baseline.** Without ``capturable`` Adam then takes its one-tensor-at-a-time
# loop, without a word, and any compiled step looks good against it. Give the eager baseline a float.
#
# What this does not show
# -----------------------
# Of the other schedulers that come with PyTorch, ``OneCycleLR`` and ``CyclicLR`` also change the momentum, as a
# float, unless told ``cycle_momentum=False``; other optimizers compile differently. Look at the log before you trust a
# time.
