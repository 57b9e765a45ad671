r"""
Where the time goes
===================

One Adam step, eager and compiled, in a profiler's trace: which kernels run, and what lies between them.

**You will see**

* every kernel of a step by name, before and after compiling;
* operator fusion as two numbers: kernels a step, and bytes a parameter;
* how much of the time the device works, and how much it waits for the next launch.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler. On a GPU the trace shows kernels. On a CPU, where nothing is
launched, it shows CPU operators in their place, and says so. ``optimbench`` is a wheel served by the site this page
comes from (see *Install* there).
"""

# %%
# Two steps, the same result
# --------------------------
# On a GPU ten square tensors of width 1024. On a CPU four of width 256, small enough for what lies between two
# operators to be seen.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
# The automated tests of this page set OPTIMBENCH_QUICK to run it on a tiny model.
quick = "OPTIMBENCH_QUICK" in os.environ
layers, width = (10, 1024) if device.type == "cuda" else (4, 256)
if quick:
    layers, width = 2, 32
kind = "kernels" if device.type == "cuda" else "CPU operators"


def make_adam():
    shapes = ((width, width),) * layers
    workload = ob.Workload(name="squares", description="", shapes=shapes)
    parameters = ob.make_parameters(workload, device=device)
    return torch.optim.Adam(parameters, lr=0.01)


# %%
# Fusion in bytes
# ---------------
# A kernel of this kind takes as long as its numbers need to come and go. In eager mode every operator reads its inputs
# from memory and writes its result there. We count both, operator by operator, as they are called.
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def tensors_in(values):
    return {id(t): t for t in tree_leaves(values) if isinstance(t, torch.Tensor)}


class CountBytes(TorchDispatchMode):
    n_bytes = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        formals = zip(args, operator._schema.arguments, strict=False)
        changed = [value for value, formal in formals if formal.is_write]
        read, written = tensors_in((args, kwargs)), tensors_in(changed)
        new = [t for key, t in tensors_in(result).items() if key not in read]
        self.n_bytes += sum(t.nbytes for t in [*read.values(), *written.values(), *new])
        return result


eager, opt = make_adam(), make_adam()
for _ in range(3):
    eager.step()
with CountBytes() as eager_count:
    eager.step()

# %%
# The compiler sees the whole step as one graph before it makes kernels of it. A number that only the next operation
# needs never has to go to memory. What remains are the graph's inputs, and the parameters and moments it writes back.
# One of Inductor's hooks shows us that graph.
import torch._inductor.config as inductor_config

compiled_bytes = []


def count_inputs_and_outputs(graph):
    inputs = [node for node in graph.nodes if node.op == "placeholder" and node.users]
    copies = [
        node for node in graph.nodes if node.target is torch.ops.aten.copy_.default
    ]
    moved = inputs + [copy.args[0] for copy in copies]
    compiled_bytes.append(sum(node.meta["val"].nbytes for node in moved))


@torch.compile
def compiled_step():
    opt.step()


settings = {"post_grad_custom_post_pass": count_inputs_and_outputs}
if device.type == "cpu":
    # Generated C++ appears in a trace only if asked to.
    settings["cpp.enable_kernel_profile"] = True
with inductor_config.patch(settings):
    for _ in range(4):
        compiled_step()

torch.testing.assert_close(
    eager.param_groups[0]["params"], opt.param_groups[0]["params"]
)
print("after four steps the parameters are the same")
assert len(compiled_bytes) == 1, "the step is not one graph"
assert compiled_bytes[0] >= ob.bytes_per_step(opt), "not everything is counted"

# %%
# One trace of each
# -----------------
# We take ten steps under :class:`torch.profiler.profile`. The last five count: the profiler itself has to warm up. On a
# GPU we keep what ran on the device. On a CPU we keep the outermost operators and the generated kernels.
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def trace(step):
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiled:
        for _ in range(10):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    return profiled.events()


def is_work(event):
    if device.type == "cuda":
        return event.device_type == DeviceType.CUDA and not event.is_user_annotation
    return event.name.startswith("aten::") or "cpp_fused" in event.name


def last_five_steps(events, wanted):
    """Start and end in microseconds, and name."""
    outermost = [
        (event.time_range.start, event.time_range.end, event.name)
        for event in events
        if wanted(event) and not (event.cpu_parent and wanted(event.cpu_parent))
    ]
    return sorted(outermost)[len(outermost) // 2 :]


traces = {"eager": trace(eager.step), "compiled": trace(compiled_step)}
work = {name: last_five_steps(events, is_work) for name, events in traces.items()}
assert all(work.values()), f"the profiler saw no {kind}"

# %%
# By name
# -------
# The names of CUDA kernels are long. We cut what all of them have in common.
import collections
import re

COMMON = (
    r"void |at::native::|\(anonymous namespace\)::|graph_\d+_"
    r"|multi_tensor_apply_kernel<.*?Metadata<.*?>, "
)
rows = []
for name, spans in work.items():
    times_us = collections.defaultdict(list)
    for start, end, what in spans:
        times_us[re.sub(COMMON, "", what)[:60]].append(end - start)
    for what, times in sorted(times_us.items(), key=lambda item: -sum(item[1])):
        rows.append((name, what, len(times) / 5, sum(times) / 5))

kernel_table = ob.Table(
    name=f"The {kind} of one step",
    columns=("step", "name", "a step", "µs a step"),
    cells=tuple(rows),
)
kernel_table

# %%
# Work and gaps
# -------------
# A gap is time in which nothing works: on a GPU the next kernel has not been launched yet, on a CPU Python is busy
# between two operators.
n_parameters = layers * width**2
moved_bytes = {"eager": eager_count.n_bytes, "compiled": compiled_bytes[0]}
summary = []
for name, spans in work.items():
    span_us = spans[-1][1] - spans[0][0]
    work_us = sum(end - start for start, end, _ in spans)
    times = (work_us / 5, (span_us - work_us) / 5, 1 - work_us / span_us)
    summary.append((len(spans) / 5, moved_bytes[name] / n_parameters, *times))
assert summary[1][0] < summary[0][0], f"compiling left as many {kind}"
assert summary[1][1] < summary[0][1], "compiling left as many bytes"

labels = (
    f"{kind} a step",
    "bytes a parameter",
    "work, µs",
    "gaps, µs",
    "share of gaps",
)
before_and_after = ob.Table(
    name="One step in the trace, before and after compiling",
    columns=("", "eager", "compiled"),
    cells=tuple(zip(labels, *summary, strict=True)),
)
before_and_after

# %%
# The last step of each trace as a picture. On a GPU the upper line shows when the host launched each kernel.
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, sharex=True, figsize=(7, 3.5), layout="constrained")
for ax, (name, events), (n_kernels, *_, gaps) in zip(
    axes, traces.items(), summary, strict=True
):
    lines = {kind: work[name]}
    launches = last_five_steps(events, lambda event: "LaunchKernel" in event.name)
    if launches:
        lines["launches"] = launches
    one_step = [spans[-len(spans) // 5 :] for spans in lines.values()]
    begin = min(spans[0][0] for spans in one_step)
    for height, spans in enumerate(one_step):
        bars = [(start - begin, end - start) for start, end, _ in spans]
        ax.broken_barh(bars, (height - 0.35, 0.7), color=f"C{height}", edgecolor="none")
    ax.set_yticks(range(len(lines)), lines)
    ax.set_title(
        f"One {name} step, {kind}: {n_kernels:.0f}; gaps: {gaps:.0%} of the time"
    )
axes[-1].set_xlabel("µs since the first event of the step")
plt.show()

# %%
# The profiler makes gaps longer, since it writes down every launch. So what compiling gains is measured without it.
comparison = ob.compare(
    {"eager": eager.step, "compiled": compiled_step},
    baseline="eager",
    min_run_time_s=0.2 if quick else 1.0,
)
comparison

# %%
print(comparison.conclusion("compiled"))

# %%
# What this does not show
# -----------------------
# * How near the kernels come to what the memory can do: "bytes a parameter" is what eager operators and the compiled
#   graph ask for, not what was measured. The next page measures.
# * A step after a real backward pass. There the host can be ahead of the device, and gaps close.
# * Which Python function the host spends its time in: ``with_stack=True`` adds that to a trace.
