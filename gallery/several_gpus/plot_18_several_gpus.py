r"""
The compiled step on several GPUs
=================================

Adam's step on parameters that FSDP2 shards or DDP copies: foreach, fused and compiled, in one process for each GPU.

**You will see**

* the same parameters as a run in one process gives, within a tolerance that is put to the test;
* the time of a step, which is that of the slowest process;
* no recompile, although the learning rate changes and a distributed checkpoint is loaded in mid-run.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; all GPUs are used, and one is enough. ``optimbench`` is a
wheel served by the site this page comes from (see *Install* there).
"""

# %%
# One process for each GPU
# ------------------------
# The processes, called *ranks*, are connected by NCCL on GPUs and by gloo on a CPU, where we start two. The environment
# can ask for another number, and can hold settings of NCCL, such as ``NCCL_NVLS_ENABLE=0`` where multicast does not
# work. A single rank shares nothing out, but everything here must hold for it too.
import os
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as dcp_states

import optimbench as ob

device, reason = ob.pick_device()
backend = "nccl" if device.type == "cuda" else "gloo"
quick = "OPTIMBENCH_QUICK" in os.environ
seconds = 0.1 if quick else 0.5
n_ranks = int(os.environ.get("OPTIMBENCH_RANKS", torch.cuda.device_count() or 2))
print(f"Ranks: {n_ranks}, on {device.type} with {backend}: {reason}.")

# %%
# What every rank runs
# --------------------
# A small transformer: four layers of width 1024 on a GPU, one of width 256 on a CPU, where each tensor takes seconds to
# compile. It has no biases: those of the attention's keys have gradients of rounding alone, and Adam would turn them
# into full steps. :func:`~torch.distributed.fsdp.fully_shard` leaves each rank a slice of every parameter, a
# ``DTensor``; with :class:`~torch.nn.parallel.DistributedDataParallel` each rank has, and updates, all of it.


def make_run(kind, way, device):
    size = (4, 1024) if device.type == "cuda" else (1, 256)
    n_layers, width = (1, 16) if quick else size
    torch.manual_seed(0)
    block, plain = torch.nn.TransformerEncoderLayer, {"dropout": 0.0, "bias": False}
    layers = [block(width, 4, 4 * width, **plain) for _ in range(n_layers)]
    ends = torch.nn.Embedding(64, width), torch.nn.Linear(width, 64)
    model = torch.nn.Sequential(ends[0], *layers, ends[1]).to(device)
    if kind == "FSDP2":
        for part in [*model, model]:
            dist.fsdp.fully_shard(part)
    elif kind == "DDP":
        model = torch.nn.parallel.DistributedDataParallel(model)
    lr, options = 1e-3, {way: True}  # foreach=True or fused=True
    if way == "compiled":  # As a tensor: a new value is then no new program.
        lr = torch.tensor(lr, device=device)
        options = {"capturable": device.type == "cuda"}
    opt = torch.optim.Adam(model.parameters(), lr=lr, **options)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.95)
    step = torch.compile(opt.step) if way == "compiled" else opt.step
    return SimpleNamespace(model=model, opt=opt, sched=sched, step=step)


def train(run, batches):
    for inputs, targets in batches:
        run.opt.zero_grad()
        logits = run.model(inputs).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, targets.flatten()).backward()
        run.step()
        run.sched.step()
    parameters = [p.detach() for p in run.model.parameters()]
    return [getattr(p, "full_tensor", lambda p=p: p)().clone() for p in parameters]


def checkpoint(run, folder, load=False):
    model, opt = dcp_states.get_state_dict(run.model, run.opt)
    states = {"model": model, "opt": opt, "sched": run.sched.state_dict()}
    if not load:
        return dcp.save(states, checkpoint_id=folder)
    dcp.load(states, checkpoint_id=folder)
    parts = {"model_state_dict": model, "optim_state_dict": opt}
    dcp_states.set_state_dict(run.model, run.opt, **parts)
    return run.sched.load_state_dict(states["sched"])


# %%
# Each rank trains on its part of every batch; the reference is one process that trains on all of it. Gradients are then
# added up in another order and differ by rounding. Adam divides each entry by its own size, so that one next to zero
# goes either way: a largest difference would be about that entry. We take norms: how far apart two runs are over how
# far they went, for the worst tensor. It must stay below a twentieth, and must find a run on half of the data.
TOLERANCE = 0.05


def apart(start, expected, got):
    tensors = zip(start, expected, got, strict=True)
    return max(((c - b).norm() / (b - a).norm()).item() for a, b, c in tensors)


def main():
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device, _ = ob.pick_device()
    dist.init_process_group(backend)
    rank = dist.get_rank()
    torch.manual_seed(1)
    batches = torch.randint(64, (20, 2, 32, 8 * n_ranks)).to(device)
    mine = batches[..., rank::n_ranks]
    alone = ("one process", "foreach", device)
    start, expected = train(make_run(*alone), []), train(make_run(*alone), batches)
    half = train(make_run(*alone), batches[..., ::2])
    rows = [("one process", "half of the data", apart(start, expected, half))]
    found = {"machine": ob.collect_environment(), "rows": rows}
    for kind in ("FSDP2", "DDP"):
        runs = {way: make_run(kind, way, device) for way in ("foreach", "fused")}
        ends = {way: train(run, mine) for way, run in runs.items()}
        with ob.capture_recompiles() as capture:
            runs["compiled"] = run = make_run(kind, "compiled", device)
            run.step = capture.watch(run.step)
            train(run, mine[:10])
            checkpoint(run, kind)
            ends["compiled"] = train(run, mine[10:])
            checkpoint(run, kind, load=True)
            ends["compiled, resumed"] = train(run, mine[10:])
        assert 0 == capture.log.n_recompiles < capture.log.n_compiles, capture.log
        rows += [(kind, way, apart(start, expected, end)) for way, end in ends.items()]
        assert rows[0][-1] > TOLERANCE > max(row[-1] for row in rows[1:]), rows
        own = [getattr(p, "to_local", p.detach)() for p in run.model.parameters()]
        print(f"{kind}: {sum(p.numel() for p in own):,} parameters here")
        steps = {way: run.step for way, run in runs.items()}
        timed = ob.compare_ranks(steps, baseline="foreach", min_run_time_s=seconds)
        found[kind] = capture.log, timed
    dist.destroy_process_group()
    return found


# %%
# :func:`optimbench.run_ranks` writes ``main`` and what it uses to a file, calls ``torchrun`` and returns what each rank
# printed. If a rank dies or hangs, it ends the others and raises an error that names the rank.
# :func:`optimbench.compare_ranks` lets all ranks wait for each other around every block of calls: it times the slowest.
outputs, found = ob.run_ranks(main, n_ranks=n_ranks, time_limit_s=300)
print(*(f"rank {rank}:\n{said}" for rank, said in enumerate(outputs)), sep="")
machine = found["machine"]
machine

# %%
# How far apart the parameters are. The run that was resumed went back from the twentieth step to the tenth.
parameters_apart = ob.Table(
    name=f"After twenty steps, against one process; the same below {TOLERANCE:g}",
    columns=("run", "step", "apart, as a share of the way"),
    cells=tuple(found["rows"]),
)
parameters_apart

# %%
# Is it compiled once, and does it pay?
# -------------------------------------
# The logs are of thirty steps on rank 0, ten of them after the checkpoint; the steps are timed later, so no first call
# below compiles. An eager operation on a ``DTensor`` also works out how its result is sliced, a compiled one does not.
fsdp_log, fsdp_comparison = found["FSDP2"]
ddp_log, ddp_comparison = found["DDP"]
print(f"FSDP2: {fsdp_log.summary}\nDDP: {ddp_log.summary}")
for way in ("fused", "compiled"):
    print(f"FSDP2, {fsdp_comparison.conclusion(way)}")
    print(f"DDP, {ddp_comparison.conclusion(way)}")
fsdp_comparison

# %%
# What this does not show
# -----------------------
# * The rest of an iteration, in which ranks talk to each other; the update alone does not.
# * Clipping by the norm of all gradients, and optimizers that need whole matrices, such as :class:`~torch.optim.Muon`.
# * Several machines: each needs its own ``torchrun``.
