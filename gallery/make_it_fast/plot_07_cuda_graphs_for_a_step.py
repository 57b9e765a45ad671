r"""
CUDA graphs for a compiled step
===============================

A compiled step launched by Python, against the same step recorded once and replayed as a CUDA graph.

**You will see**

* what has to stay where it is while a graph is replayed;
* how the learning rate still changes, step by step as in the eager run;
* a gradient that moves: how training goes on with old numbers, and how that is caught.

**Requirements:** PyTorch 2.11 or newer, and a GPU for the graph itself. Without one the page shows what holds for every
step that remembers addresses, on flat buffers, and a C++ compiler is needed. ``optimbench`` is a wheel served by the
site this page comes from (see *Install* there).
"""

# %%
# A graph is a recording of kernel launches with all their arguments: the addresses they read and write, and every
# number that is not in memory. Replaying it costs the host one call, however many kernels there are.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
has_graphs = device.type == "cuda"
recipe = "compiled_cudagraph" if has_graphs else "flat_compiled"
width = 16 if "OPTIMBENCH_QUICK" in os.environ else 512


def make_optimizer(**options):
    torch.manual_seed(0)
    parameters = [
        torch.nn.Parameter(torch.randn(width, width, device=device)) for _ in range(3)
    ]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.Adam(parameters, lr=0.01, **options)


# %%
# By hand
# -------
# What has to be so for a step to be recorded: the step count and the learning rate are tensors on the device
# (``capturable=True``), the first calls happen on a side stream so that everything is compiled and allocated before,
# and the gradients keep their addresses.
if has_graphs:
    by_hand_opt = make_optimizer(capturable=True)
    by_hand_opt.param_groups[0]["lr"] = torch.tensor(0.01, device=device)

    @torch.compile
    def compiled():
        by_hand_opt.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            compiled()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compiled()
    graph.replay()
    print("recorded and replayed")
else:
    print(
        "No CUDA device: nothing is recorded here. What follows uses flat buffers instead."
    )

# %%
# The same from the package, and what it gains
# --------------------------------------------
# :func:`optimbench.build_step` does this for any optimizer of PyTorch that can be captured. First: does it the same?
(verdict,) = ob.check_sameness(make_optimizer(), [recipe])
assert verdict.is_same, verdict.reason
print(f"{recipe}: the same as the for-loop after {verdict.n_steps} steps")

graph_gain = ob.compare(
    {
        "eager": make_optimizer().step,
        "compiled": ob.build_step(make_optimizer(), "compiled"),
        recipe: ob.build_step(make_optimizer(), recipe),
    },
    baseline="compiled",
    min_run_time_s=0.1 if "OPTIMBENCH_QUICK" in os.environ else 1.0,
)
graph_gain

# %%
print(graph_gain.conclusion(recipe))

# %%
# The learning rate still changes
# -------------------------------
# A number inside a graph never changes again. So the learning rate is a tensor whose value is copied in before a replay
# when the scheduler has set a new one.
opt, eager_opt = make_optimizer(), make_optimizer()
step = ob.build_step(opt, recipe)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
eager_sched = torch.optim.lr_scheduler.ExponentialLR(eager_opt, gamma=0.5)
trace = []
for number in range(1, 8):
    step()
    eager_opt.step()
    (used,) = step.learning_rates
    trace.append((number, used, eager_opt.param_groups[0]["lr"]))
    sched.step()
    eager_sched.step()
torch.testing.assert_close(*(o.param_groups[0]["params"] for o in (opt, eager_opt)))
assert all(abs(used - eager) < 1e-8 for _, used, eager in trace)
graph_lr = ob.Table(
    name="The learning rate that each step used",
    columns=("step", recipe, "eager"),
    cells=tuple(trace),
)
graph_lr

# %%
# A gradient that moves
# ---------------------
# ``zero_grad()`` drops gradients by default, and the next backward pass makes new ones elsewhere. The graph recorded by
# hand goes on reading the old addresses, without a word: we replace the gradients by zeros and clear the first moment,
# and the parameters move all the same.
if has_graphs:
    parameter = by_hand_opt.param_groups[0]["params"][0]
    # Kept, so that nothing else is written where they are.
    old_gradients = [each.grad for each in by_hand_opt.param_groups[0]["params"]]
    by_hand_opt.zero_grad()
    for each in by_hand_opt.param_groups[0]["params"]:
        each.grad = torch.zeros_like(each)
    by_hand_opt.state[parameter]["exp_avg"].zero_()
    before = parameter.detach().clone()
    for _ in range(3):
        graph.replay()
    moved = (parameter - before).abs().max().item()
    print(f"with gradients of zero, a replay still moved the parameters by {moved:.3f}")
    assert moved > 0
    del old_gradients

# %%
# A step built by the package looks where the gradients are. In a graph it refuses; flat buffers without a graph can
# still take the new gradients along, and do.
for optimizer in (opt, eager_opt):
    optimizer.zero_grad()
    for each in optimizer.param_groups[0]["params"]:
        each.grad = torch.zeros_like(each)
refusal = None
try:
    step()
except ob.StaleGradientError as error:
    refusal = error
    print(f"StaleGradientError: {error}")
else:
    eager_opt.step()
    torch.testing.assert_close(*(o.param_groups[0]["params"] for o in (opt, eager_opt)))
    print("the step took the new gradients: the parameters are those of the eager step")
assert (refusal is not None) == has_graphs

# %%
# The remedy is to set gradients to zero where they are: ``step.zero_grad()``, or ``opt.zero_grad(set_to_none=False)``.
#
# What this does not show
# -----------------------
# * A graph of the whole iteration, with forward and backward pass, saves more launches and asks for more that stays
#   fixed.
# * Gradient scaling that skips a step needs a decision on the host, or an optimizer that takes it on the device.
