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
from torch.optim.lr_scheduler import ExponentialLR, LinearLR

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")


def make_parameters():
    return ob.make_parameters([(16, 16), (16, 16)], device=device)


# %%
# A tensor as the learning rate
# -----------------------------
# ``LinearLR`` raises the learning rate to its full value over five steps. We give :class:`~torch.optim.Adam` a tensor,
# which the scheduler changes in place, and compile one function that calls both. To the compiler a tensor is data: its
# value may change without a new compile.
def make_step(lr, total_iters=5, **options):
    opt = torch.optim.Adam(make_parameters(), lr=lr, **options)
    sched = LinearLR(opt, total_iters=total_iters)

    def step():
        opt.step()
        sched.step()

    return opt, step


# On the device, as `capturable` asks for: all of Adam's arithmetic stays there.
lr = torch.tensor(0.01, device=device)
opt, step = make_step(lr, capturable=device.type == "cuda")
eager_opt, eager_step = make_step(0.01)

lr_steps = []
with ob.capture_recompiles() as capture:
    compiled_step = capture.watch(torch.compile(step))
    for number in range(1, 6):
        compiled_step()
        eager_step()
        lrs = [float(o.param_groups[0]["lr"]) for o in (opt, eager_opt)]
        lr_steps.append((number, *lrs))

lr_trace = ob.Table(
    name="The learning rate after each step",
    columns=("step", "compiled, tensor", "eager, float"),
    cells=tuple(lr_steps),
)
lr_trace

# %%
# Counting recompiles is not enough: a step that kept using an old learning rate would not recompile either. So we
# compare the parameters with those of the eager step, and make sure that something was compiled at all.
eager_parameters = eager_opt.param_groups[0]["params"]
torch.testing.assert_close(opt.param_groups[0]["params"], eager_parameters)
assert all(abs(compiled - eager) < 1e-8 for _, compiled, eager in lr_steps)

tensor_log = capture.log
assert tensor_log.n_compiles > tensor_log.n_recompiles == 0
tensor_log

# %%
# A float as the learning rate
# ----------------------------
# A Python float is part of the compiled program. The compiler writes down a *guard*: this code is for a learning rate
# of 0.0033. The scheduler changes it, the guard fails, and the step is compiled again, until the compiler gives up at a
# limit (``torch._dynamo.config.recompile_limit``). How soon depends on Adam's implementation. ``foreach=True`` handles
# all tensors at once and is the default on a GPU.
#
# ``torch._logging.set_logs(recompiles=True)`` makes PyTorch print every recompile; so does ``TORCH_LOGS=recompiles`` in
# the environment, and other words show graphs, fusion or generated code: :doc:`reading the log
# <../keep_it_compiled/plot_10_reading_the_recompile_log>` has it in full. Here :func:`optimbench.log_compiles` collects
# the same records instead of printing them, with the reasons in words.
CALLS = 12
_, step = make_step(0.01, total_iters=CALLS, foreach=True)
foreach_log = ob.log_compiles(step, calls=CALLS)
assert foreach_log.limit_hit
foreach_log

# %%
# From that call on the step is eager, and nothing says so. ``foreach=False``, the default on a CPU, handles one tensor
# after the other: the compiler notices at the second value that the lr changes, and makes it an input of the program.
_, step = make_step(0.01, total_iters=CALLS, foreach=False)
single_log = ob.log_compiles(step, calls=CALLS)
assert foreach_log.n_recompiles > single_log.n_recompiles
single_log

# %%
import matplotlib.pyplot as plt

from optimbench import figures

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
title = f"Float lr, foreach: {foreach_log.n_compiles} compiles, then eager again"
figures.draw(foreach_log, axes).set_title(title)
plt.show()

# %%
# So "recompiles at every iteration" holds for one implementation and not for the other, and the price of the first is
# higher than it says. For both, what changes between iterations and takes part in the computation belongs in a
# tensor. :func:`optimbench.build_step` does that itself: the optimizer keeps its float, the step has the tensor.
opt = torch.optim.Adam(make_parameters(), lr=0.01)
sched = LinearLR(opt, total_iters=5)
with ob.capture_recompiles() as capture:
    step = ob.build_step(opt, "compiled")
    for _ in range(5):
        step()
        sched.step()
torch.testing.assert_close(opt.param_groups[0]["params"], eager_parameters)
assert capture.log.n_compiles > capture.log.n_recompiles == 0
print(capture.log.summary)

# %%
# Four mistakes
# -------------
# **A scheduler built after** ``opt.step`` **was replaced.** It wants to wrap a method and finds a function. Build the
# scheduler first, or leave ``opt.step`` alone and compile a function that calls it, as above.
opt = torch.optim.Adam(make_parameters(), lr=0.01)
opt.step = torch.compile(opt.step)
try:
    LinearLR(opt)
except AttributeError as error:
    print(f"AttributeError: {error}")
else:
    raise AssertionError("a scheduler can wrap a compiled step by now")

# %%
# **A tensor learning rate with** ``foreach=True`` **and without** ``capturable=True``.
try:
    torch.optim.Adam(make_parameters(), lr=lr, foreach=True)
except ValueError as error:
    print(f"ValueError: {error}")
else:
    raise AssertionError("foreach takes such a learning rate by now")

# %%
# **One tensor for two optimizers.** Both schedulers change it in place, so it changes twice in every step.
shared = torch.tensor(1.0, device=device)
for _ in range(2):
    opt = torch.optim.Adam(make_parameters(), lr=shared)
    sched = ExponentialLR(opt, gamma=0.5)
    opt.step()
    sched.step()
print(f"halved once by each of two schedulers: {float(shared)}")
assert float(shared) == 0.25

# %%
# **A tensor learning rate in the eager baseline.** Without ``capturable`` Adam silently takes its one-tensor-at-a-time
# loop, also on a GPU. Where there are many launches, a compiled step looks good against it. Give the baseline a float.
for eager_lr in (0.01, torch.tensor(0.01)):
    opt = torch.optim.Adam(make_parameters(), lr=eager_lr)
    opt.step()  # Makes its state.
    print(f"lr={eager_lr!r}: {ob.count_operations(opt.step).count} operations")

# %%
# What this does not show
# -----------------------
# Of PyTorch's :doc:`other schedulers <../keep_it_compiled/plot_11_every_scheduler>`, ``OneCycleLR`` and ``CyclicLR``
# also change the momentum, as a float, unless told ``cycle_momentum=False``. Other optimizers compile differently: look
# at the log before you trust a time.
