r"""
Checked against other clocks
============================

What ``optimbench`` says of a step, beside what a plain loop, CUDA events and a profiler's trace say of the same step.

**You will see**

* wall time beside a loop around ``time.perf_counter``, and on a GPU kernels and graph replays beside other clocks;
* whether a loop takes longer in a process that has used the profiler;
* what a comparison says of a step and itself, and of a step that does a tenth more, many times over.

**Requirements:** PyTorch 2.11 or newer. ``optimbench`` is a wheel served by the site this page comes from (see
*Install* there).
"""

# %%
# A step to measure
# -----------------
# Adam with ``fused=True`` on one tensor: on a GPU of 64 MB, so that its kernel takes longer than Python needs to launch
# it; on a CPU of 1 MB.
import json
import os
import pathlib
import statistics
import tempfile
import time

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
# The automated tests of this page set OPTIMBENCH_QUICK to run it on a tiny tensor.
quick = "OPTIMBENCH_QUICK" in os.environ
on_gpu = device.type == "cuda"
size = 2**10 if quick else 2**24 if on_gpu else 2**18
run_time_s = 0.05 if quick else 1.0


def make_adam(**options):
    parameters = ob.make_parameters([(size,)], device=device)
    return torch.optim.Adam(parameters, fused=True, **options)


step = make_adam().step
measured = ob.measure(step, name="fused", min_run_time_s=run_time_s)

# %%
# A plain loop
# ------------
# As many calls as one of our blocks has, as often, with a wait for the device before the clock is read.


def plain_loop_s(step, calls):
    start = time.perf_counter()
    for _ in range(calls):
        step()
    if on_gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def median_of_loops_s(step, calls, n_loops=20):
    return statistics.median(plain_loop_s(step, calls) for _ in range(n_loops))


loop_s = median_of_loops_s(step, measured.calls_per_block, measured.n_blocks)
found = [("wall time", "a plain loop", measured.median_s, loop_s)]

# %%
# The trace, and events
# ---------------------
# The profiler can write what it saw to a file. There we add up the durations ourselves. A replayed graph is one call
# for the host, so two events on the device, with two hundred replays between them, leave nothing else to time.
if on_gpu:
    with torch.profiler.profile(acc_events=True) as profiled:
        for _ in range(20):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profiled.export_chrome_trace(f"{folder}/trace.json")
        trace = pathlib.Path(folder, "trace.json").read_text(encoding="utf-8")
    events = json.loads(trace)["traceEvents"]
    ran = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    traced_s = sum(event["dur"] for event in ran) / 1e6 / 20
    found.append(("kernels", "the trace", measured.kernel_time_s, traced_s))

    replay = torch.cuda.CUDAGraph()
    captured = make_adam(lr=torch.tensor(0.001, device=device), capturable=True)
    captured.step()
    with torch.cuda.graph(replay):
        captured.step()
    replays = ob.measure(replay.replay, name="replay", device=device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    blocks_s = []
    for _ in range(20):
        start.record()
        for _ in range(200):
            replay.replay()
        end.record()
        torch.cuda.synchronize()
        blocks_s.append(start.elapsed_time(end) / 1e3 / 200)
    events_s = statistics.median(blocks_s)
    found.append(("graph replay", "two events", replays.median_s, events_s))
else:
    print("Kernels and graph replays need a CUDA device; not measured here.")

other_clocks = ob.Table(
    name="The same time by two clocks",
    columns=("what", "other clock", "optimbench, µs", "other, µs", "ratio"),
    cells=tuple((*who, a * 1e6, b * 1e6, a / b) for *who, a, b in found),
)
other_clocks

# %%
# After a profile
# ---------------
# On a GPU the profiler uses CUPTI, which stays attached when the profile has ended, so that launches after it may take
# longer. Functions of ``optimbench`` detach it once they have profiled. Does that matter here? The loop above, three
# times over a step that spends its time on launches. The first line and the last ask the same: the middle one tells
# something only where it differs from both by more than they do from each other.
n_tensors = 3 if quick else 100
small = ob.make_parameters([(1024,)] * n_tensors, device=device)
launching = torch.optim.Adam(small, foreach=True).step
loops_s = {"before a profile": median_of_loops_s(launching, 20)}
with torch.profiler.profile(acc_events=True):
    launching()
loops_s["after a profile"] = median_of_loops_s(launching, 20)
ob.measure(launching, name="foreach", min_run_time_s=0.1)
loops_s["after one of optimbench's"] = median_of_loops_s(launching, 20)

first_s = loops_s["before a profile"]
after_a_profile = ob.Table(
    name=f"A loop over Adam's step, foreach, {n_tensors} small tensors",
    columns=("when", "µs a step", "times the first"),
    cells=tuple((when, s * 1e6, s / first_s) for when, s in loops_s.items()),
)
after_a_profile

# %%
# The right verdict
# -----------------
# Ten steps are compared with the same ten, and with eleven: there we know what is true. Every comparison has 99 %
# intervals of its own, so one in a hundred may be wrong even on a quiet machine. "No clear difference" for eleven steps
# is not wrong: the interval was too wide to tell.


def several(times):
    return lambda: [step() for _ in range(times)]


steps = {"ten": several(10), "the same": several(10), "a tenth more": several(11)}
walls = {"the same": [], "a tenth more": []}
for seed in range(1 if quick else 20):
    _comparison = ob.compare(steps, baseline="ten", min_run_time_s=0.1, seed=seed)
    for name, said in walls.items():
        said.append(_comparison.speedup(name).wall)

verdicts, rows = ("faster", "no clear difference", "slower"), []
for name, said in walls.items():
    counts = [sum(w.verdict.endswith(verdict) for w in said) for verdict in verdicts]
    rows.append((name, *counts, 1 / statistics.median(w.value for w in said)))
right_verdicts = ob.Table(
    name="Verdicts on ten steps against the same, and against eleven",
    columns=("compared", *verdicts, "median of time ratios"),
    cells=tuple(rows),
)
right_verdicts

# %%
# What this does not show
# -----------------------
# * That every machine is as quiet: the tests of ``optimbench`` do this with a clock of their own, with noise, drift and
#   outliers, and hold it to 95 right verdicts in 100.
# * Whether a step's time in training is the same: caches and queues are in another state there.
