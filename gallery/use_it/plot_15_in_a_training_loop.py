r"""
A faster step in a training loop
================================

A small transformer trained with Adam's default step, and with a compiled step in its place.

**You will see**

* the same losses with mixed precision, accumulation, clipping and a learning rate that changes;
* what share of an iteration the step is, which bounds what a faster one can gain, and what is gained;
* a checkpoint that is loaded in mid-run, without a recompile.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# A task that can be learnt
# -------------------------
# Sequences of eight symbols, each drawn with probabilities that depend on the one before. Who knows these cannot guess
# every draw either: their loss is the least possible. The model has four layers of width 512, on a CPU two of 64.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ  # The tests of this page train a tiny one.
n_layers, width, length, lr = (1, 16, 8, 2e-2) if quick else (2, 64, 8, 5e-3)
if device.type == "cuda" and not quick:
    n_layers, width, lr = 4, 512, 1e-4
n_iterations, batch_size = 40 if quick else 100, 32

torch.manual_seed(0)
chain = torch.softmax(3 * torch.randn(8, 8), dim=-1)
symbols = [torch.randint(8, (n_iterations * batch_size,))]
for _ in range(length):
    symbols.append(torch.multinomial(chain[symbols[-1]], 1)[:, 0])
least_loss = -chain[symbols[-2], symbols[-1]].log().mean().item()
data = torch.stack(symbols, dim=1).view(n_iterations, batch_size, -1).to(device)

# %%
# The loop
# --------
# An iteration adds up the gradients of two half batches, clips them and takes a step. A GPU computes in float16, whose
# small range asks for a :class:`~torch.amp.GradScaler`: it scales the loss, and skips a step with gradients that are
# not finite. A CPU computes in bfloat16 and does without. A step on :doc:`flat buffers
# <../make_it_fast/plot_06b_flatten_then_compile>` takes the optimizer's place; the scheduler is built on the optimizer.
from types import SimpleNamespace

half = torch.float16 if device.type == "cuda" else torch.bfloat16
RECIPE = "flat_compiled_cudagraph" if device.type == "cuda" else "flat_compiled"


def make_run(recipe=None, lr=lr, **options):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(
        width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
    )
    model = torch.nn.Sequential(
        torch.nn.Embedding(8, width),
        torch.nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False),
        torch.nn.Flatten(),
        torch.nn.Linear(length * width, 8),
    ).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=lr, **options)
    step = ob.build_step(opt, recipe) if recipe else opt
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, n_iterations)
    scaler = torch.amp.GradScaler(device.type, 1024.0, enabled=device.type == "cuda")
    return SimpleNamespace(model=model, opt=opt, sched=sched, scaler=scaler, step=step)


def iterate(run, batch):
    total = 0
    for sequences in batch.chunk(2):
        with torch.autocast(device.type, dtype=half):
            guess, last = run.model(sequences[:, :-1]), sequences[:, -1]
            loss = torch.nn.functional.cross_entropy(guess, last) / 2
        run.scaler.scale(loss).backward()
        total += loss.detach()
    run.scaler.unscale_(run.step)
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.scaler.step(run.step)
    run.scaler.update()
    run.step.zero_grad()
    return total


def train(run, batches=data):
    losses = []
    for batch in batches:
        losses.append(iterate(run, batch))
        run.sched.step()
    return torch.stack(losses).cpu()


# %%
# The same losses
# ---------------
# Two ways to compute the same step differ by rounding, and training makes small differences larger. So we compare the
# mean loss of every ten iterations, and ask for 0.02 nats: strict enough to find a run with twice the learning rate.
import matplotlib.pyplot as plt

threads = torch.get_num_threads()
torch.set_num_threads(1)  # On a CPU the matrices are too small to share.
runs = {
    "default": make_run(),
    "fused=True": make_run(fused=True),
    RECIPE: make_run(RECIPE),
    "twice the lr": make_run(lr=2 * lr),
}
losses = {name: train(run).view(-1, 10).mean(dim=1) for name, run in runs.items()}
off = {name: (loss - losses["default"]).abs().max() for name, loss in losses.items()}
assert max(off["fused=True"], off[RECIPE]) < 0.02 < off["twice the lr"], off

figure, axes = plt.subplots(figsize=(7, 3.3), layout="constrained")
axes.plot(losses["default"], label="default", linewidth=7, alpha=0.4)
axes.plot(losses[RECIPE], label=RECIPE)
axes.axhline(least_loss, linestyle=":", color="tab:red", label="least possible")
axes.set(xlabel="ten iterations", ylabel="loss [nats]")
axes.set_title(f"The losses of both steps differ by {off[RECIPE]:.2g} at most")
axes.legend()
plt.show()

# %%
# What is gained end to end
# -------------------------
# We time whole iterations, also without the step: what that gains is the most that any step can.
runs["no step at all"] = runs.pop("twice the lr")
runs["no step at all"].opt.step = lambda: None
mixed_iterations = ob.compare(
    {name: lambda run=run: iterate(run, data[0]) for name, run in runs.items()},
    baseline="default",
    min_run_time_s=0.1 if quick else 2.0,
    device=device,
)
mixed_iterations

# %%
gain = mixed_iterations.speedup("no step at all")
print(f"The step is at most {1 - 1 / gain.wall.high:.0%} of an iteration.")
if gain.kernel:
    print(f"Of the kernels' time it has {1 - 1 / gain.kernel.value:.0%}.")
print(mixed_iterations.conclusion(RECIPE))

# %%
# A checkpoint in mid-run
# -----------------------
# We train, save, train on, load, and train on once more: the same losses, from one compile, and from a plain optimizer.
import io


def load(run):
    checkpoint.seek(0)
    for name, state in torch.load(checkpoint).items():
        getattr(run, name).load_state_dict(state)
    return run


checkpoint = io.BytesIO()
with ob.capture_recompiles() as capture:
    run = make_run(RECIPE)
    train(run, data[:5])
    parts = {name: getattr(run, name) for name in ("model", "opt", "sched", "scaler")}
    torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)
    once, again = train(run, data[5:10]), train(load(run), data[5:10])
for resumed in (again, train(load(make_run()), data[5:10])):
    torch.testing.assert_close(resumed, once, rtol=0, atol=0.02)
resume_log = capture.log
assert (resume_log.n_compiles, resume_log.n_recompiles) == (1, 0)
torch.set_num_threads(threads)
resume_log

# %%
# What this does not show
# -----------------------
# * The share for you. A larger batch makes it smaller: leave out the step and measure, as above.
# * What the scaler costs: the host waits for it before each step, but not with ``fused=True``, whose kernel decides.
