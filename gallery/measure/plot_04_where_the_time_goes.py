r"""
Where the time goes
===================

One Adam step, eager and compiled, in a profiler's trace: which kernels run, and what lies between them.

**You will see**

* every kernel of a step by name, before and after compiling;
* operator fusion as two numbers: kernels a step, and bytes a parameter;
* how much of the time the device works, and how much it waits for the next launch.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. On a CPU, which launches none, operators stand in for
kernels. ``optimbench`` is a wheel served by the site this page comes from (see *Install* there).
"""

# %%
# On a GPU ten square tensors; on a CPU four small ones, so that what lies between two operators can be seen.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests of this page take two tiny ones.
layers, width = (10, 1024) if device.type == "cuda" else (4, 256)
layers, width = (2, 32) if quick else (layers, width)
kind = "kernels" if device.type == "cuda" else "CPU operators"


def make_adam():
    parameters = ob.make_parameters([(width, width)] * layers, device=device)
    return torch.optim.Adam(parameters, lr=0.01)


# %%
# Fusion in bytes
# ---------------
# On a GPU a kernel of this kind takes as long as its numbers need to come and go. In eager mode each operator reads its
# inputs from memory and writes its result there. :func:`optimbench.count_operations` adds that up, as they are called.
eager, opt = make_adam(), make_adam()
for _ in range(3):
    eager.step()
eager_bytes = ob.count_operations(eager.step).moved_bytes

# %%
# The compiler sees the whole step as one graph. A number that only the next operation needs never goes to memory: what
# remains are the graph's inputs, and the parameters and moments it writes back. A hook of Inductor's shows the graph.
import torch._inductor.config as inductor_config

compiled_bytes = []


def count_inputs_and_outputs(graph):
    moved = [node for node in graph.nodes if node.op == "placeholder" and node.users]
    copy = torch.ops.aten.copy_.default
    moved += [node.args[0] for node in graph.nodes if node.target is copy]
    compiled_bytes.append(sum(node.meta["val"].nbytes for node in moved))


@torch.compile
def compiled_step():
    opt.step()


# On a CPU, generated C++ appears in a trace only if asked to.
settings = {"post_grad_custom_post_pass": count_inputs_and_outputs}
settings["cpp.enable_kernel_profile"] = device.type == "cpu"
with inductor_config.patch(settings):
    for _ in range(4):
        compiled_step()

params, compiled_params = (o.param_groups[0]["params"] for o in (eager, opt))
torch.testing.assert_close(compiled_params, params)
assert len(compiled_bytes) == 1, "the step is not one graph"
assert compiled_bytes[0] >= ob.bytes_per_step(opt), "not everything is counted"

# %%
# One trace of each
# -----------------
# We take ten steps under :class:`torch.profiler.profile`. The last five count: the profiler itself has to warm up. On a
# GPU we keep what ran on the device. On a CPU we keep the outermost operators and the generated kernels.
from torch.autograd import DeviceType
from torch.profiler import profile


def trace(step):
    with profile(acc_events=True) as profiled:
        for _ in range(10):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    return profiled.events()


def is_work(event):
    on_device = event.device_type == DeviceType.CUDA and not event.is_user_annotation
    operator = event.name.startswith("aten::") or "cpp_fused" in event.name
    return on_device if device.type == "cuda" else operator


def last_five_steps(events, wanted):
    """Start and end in microseconds, and name."""
    found = [e for e in events if wanted(e)]
    found = [e for e in found if not (e.cpu_parent and wanted(e.cpu_parent))]
    spans = sorted((e.time_range.start, e.time_range.end, e.name) for e in found)
    return spans[len(spans) // 2 :]


traces = {"eager": trace(eager.step), "compiled": trace(compiled_step)}
work = {name: last_five_steps(events, is_work) for name, events in traces.items()}
assert all(work.values()), f"the profiler saw no {kind}"

# %%
# The names of CUDA kernels are long. We cut what all of them have in common.
import collections
import re

COMMON = r"void |at::native::|\(anonymous namespace\)::|graph_\d+_"
COMMON += r"|multi_tensor_apply_kernel<.*?Metadata<.*?>, "
rows = []
for name, spans in work.items():
    times_us = collections.defaultdict(list)
    for start, end, what in spans:
        times_us[re.sub(COMMON, "", what)[:60]].append(end - start)
    for what, times in sorted(times_us.items(), key=lambda item: -sum(item[1])):
        rows.append((name, what, len(times) / 5, sum(times) / 5))

columns = ("step", "name", "a step", "µs a step")
kernel_table = ob.Table(
    name=f"The {kind} of one step", columns=columns, cells=tuple(rows)
)
kernel_table

# %%
# Work and gaps
# -------------
# A gap is time in which nothing works: on a GPU the next kernel has not been launched yet, on a CPU Python is busy
# between two operators.
summary = []
for spans, moved in zip(work.values(), (eager_bytes, *compiled_bytes), strict=True):
    span_us = spans[-1][1] - spans[0][0]
    work_us = sum(end - start for start, end, _ in spans)
    times = (work_us / 5, (span_us - work_us) / 5, 1 - work_us / span_us)
    summary.append((len(spans) / 5, moved / layers / width**2, *times))
(eager_work, eager_moved, *_), (compiled_work, compiled_moved, *_) = summary
assert compiled_work < eager_work, f"compiling left as many {kind}"
assert compiled_moved < eager_moved, "compiling left as many bytes"

labels = f"{kind} a step", "bytes a parameter", "work, µs", "gaps, µs", "share of gaps"
before_and_after = ob.Table(
    name="One step in the trace, before and after compiling",
    columns=("", *work),
    cells=tuple(zip(labels, *summary, strict=True)),
)
before_and_after

# %%
# The last step of each trace.
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, sharex=True, figsize=(7, 2.5), layout="constrained")
for ax, (name, spans), found in zip(axes, work.items(), summary, strict=True):
    one_step = spans[-len(spans) // 5 :]
    bars = [(start - one_step[0][0], end - start) for start, end, _ in one_step]
    ax.broken_barh(bars, (0, 1), edgecolor="none")
    ax.set_yticks([])
    ax.set_title(f"{name}: {found[0]:.0f} {kind}, gaps for {found[-1]:.0%} of the time")
axes[-1].set_xlabel("µs since the step's first")
plt.show()

# %%
# What this does not show
# -----------------------
# * How near the kernels come to what the memory can do: "bytes a parameter" is what eager operators and the compiled
#   graph ask for, not what was measured. The next page measures.
# * What compiling gains: the profiler makes gaps longer, since it writes down every launch. Other pages do without it.
# * A step after a real backward pass. There the host can be ahead of the device, and gaps close.
