r"""
A faster step in a training loop
================================

A small transformer trained with Adam's default step, and with a compiled step in its place.

**You will see**

* what share of an iteration the step is, which bounds what a faster one can gain;
* what is gained end to end, in float32 and in mixed precision;
* the same losses with gradient accumulation, clipping, loss scaling and a learning rate that changes;
* a checkpoint that is loaded in mid-run, without a recompile.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# A task that can be learnt
# -------------------------
# The data are sequences of eight symbols. Each symbol is drawn with probabilities that depend on the two before it.
# Whoever knows these probabilities still cannot guess every draw: their own loss is the least that a model can reach.
# On a GPU the model has six layers of width 512 and sees longer sequences; on a CPU it has two of width 64.
import os

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
quick = "OPTIMBENCH_QUICK" in os.environ
n_layers, width, length, lr = 2, 64, 16, 5e-3
if device.type == "cuda":
    n_layers, width, length, lr = 6, 512, 64, 3e-4
if quick:
    n_layers, width, length, lr = 1, 16, 8, 2e-2
n_iterations, batch_size, n_symbols = 40 if quick else 150, 32, 8

torch.manual_seed(0)
chain = torch.softmax(3 * torch.randn(n_symbols, n_symbols, n_symbols), dim=-1)
symbols = list(torch.randint(n_symbols, (2, n_iterations * batch_size)))
for _ in range(length - 1):
    symbols.append(torch.multinomial(chain[symbols[-2], symbols[-1]], 1)[:, 0])
data = torch.stack(symbols, dim=1).view(n_iterations, batch_size, length + 1)
drawn_with = chain[data[..., :-2], data[..., 1:-1]].gather(-1, data[..., 2:, None])
least_loss = -drawn_with.log().mean().item()
data = data.to(device)


class Predictor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.symbol = torch.nn.Embedding(n_symbols, width)
        self.position = torch.nn.Parameter(0.02 * torch.randn(length, width))
        layer = torch.nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.TransformerEncoder(
            layer, n_layers, enable_nested_tensor=False
        )
        self.output = torch.nn.Linear(width, n_symbols)
        causal = torch.ones(length, length).triu(1).bool()
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, batch):
        x = self.symbol(batch[:, :-1]) + self.position
        x = self.layers(x, mask=self.causal, is_causal=True)
        logits, targets = self.output(x).flatten(0, 1), batch[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits, targets)


# %%
# The loop
# --------
# An iteration adds up the gradients of two half batches, clips them and takes a step. In mixed precision a GPU computes
# in float16, whose small range asks for a :class:`~torch.amp.GradScaler`: it scales the loss up, the gradients down
# again, and skips the step where one of them is not finite. A CPU computes in bfloat16, which has the range of float32,
# and a scaler that is not enabled passes everything on.
#
# The scaler wants an optimizer: ``param_groups`` to find the gradients, ``step`` to call. We give it an object with
# those and ``zero_grad``. The built step sets gradients to zero where they are, since it may not lose sight of them.
# The scheduler is built on the optimizer itself.
from types import SimpleNamespace

half = torch.float16 if device.type == "cuda" else torch.bfloat16
# The recipe that the page "Flatten, then compile" arrives at.
RECIPE = "flat_compiled_cudagraph" if device.type == "cuda" else "flat_compiled"


def make_scaler(enabled):
    return torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=enabled)


def make_run(recipe=None, mixed=False, lr=lr, **options):
    torch.manual_seed(1)
    model = Predictor().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=lr, **options)
    stepper = opt
    if recipe is not None:
        step = ob.build_step(opt, recipe)
        stepper = SimpleNamespace(
            param_groups=opt.param_groups, step=step, zero_grad=step.zero_grad
        )
    return SimpleNamespace(
        model=model,
        opt=opt,
        stepper=stepper,
        sched=torch.optim.lr_scheduler.CosineAnnealingLR(opt, n_iterations),
        scaler=make_scaler(enabled=mixed and device.type == "cuda"),
        mixed=mixed,
    )


def iterate(run, batch):
    total = torch.zeros((), device=device)
    for half_batch in batch.chunk(2):
        with torch.autocast(device.type, dtype=half, enabled=run.mixed):
            loss = run.model(half_batch) / 2
        run.scaler.scale(loss).backward()
        total += loss.detach()
    run.scaler.unscale_(run.stepper)
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.scaler.step(run.stepper)
    run.scaler.update()
    run.stepper.zero_grad()
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
# mean loss of every ten iterations, and ask for a fiftieth. Is that strict? It has to find a run with twice the
# learning rate.
threads = torch.get_num_threads()
if device.type == "cpu":
    # The matrices are too small to share, and threads that wait for each other would be most of what we time.
    torch.set_num_threads(1)
TOLERANCE = 0.02
losses, differences = {}, []


def largest_difference(name, expected):
    tens = (losses[name] - losses[expected]).view(-1, 10).mean(dim=1)
    difference = tens.abs().max().item()
    differences.append((name, expected, difference))
    return difference


for precision in ("float32", "mixed"):
    mixed = precision == "mixed"
    eager, built = f"{precision}, default step", f"{precision}, {RECIPE}"
    losses[eager] = train(make_run(mixed=mixed))
    losses[built] = train(make_run(RECIPE, mixed=mixed))
    assert largest_difference(built, eager) < TOLERANCE
losses["float32, twice the lr"] = train(make_run(lr=2 * lr))
assert largest_difference("float32, twice the lr", "float32, default step") > TOLERANCE

loss_differences = ob.Table(
    name="Largest difference of the mean loss over ten iterations",
    columns=("run", "compared with", "difference"),
    cells=tuple(differences),
    remarks=(f"Two runs are the same below {TOLERANCE}.",),
)
loss_differences

# %%
# A thin line on a thick one: where only one of them is seen, something is wrong.
import matplotlib.pyplot as plt

figure, both_axes = plt.subplots(
    ncols=2, sharey=True, figsize=(7, 3.3), layout="constrained"
)
for axes, precision in zip(both_axes, ("float32", "mixed"), strict=True):
    for name, width_pt in (("default step", 7), (RECIPE, 1.5), ("twice the lr", 1.5)):
        if (curve := losses.get(f"{precision}, {name}")) is not None:
            means = curve.view(-1, 10).mean(dim=1)
            alpha = 0.4 if name == "default step" else 1.0
            middle = range(5, n_iterations, 10)
            axes.plot(middle, means, label=name, linewidth=width_pt, alpha=alpha)
    axes.axhline(least_loss, linestyle=":", color="tab:red", label="least possible")
    axes.set(xlabel="iteration, means of ten", title=precision)
both_axes[0].set_ylabel("loss [nats]")
both_axes[0].legend()
figure.suptitle("The loss with the default step and with the built one")
plt.show()

# %%
print(f"the draws themselves have a loss of {least_loss:.3f}")
for name, curve in losses.items():
    print(f"{name}: from {curve[0]:.3f} to {curve[-10:].mean():.3f}")
    assert curve[-10:].mean() < curve[:10].mean()

# %%
# What is gained end to end
# -------------------------
# We time whole iterations, among them some that leave out the step. What a step of no time at all would gain is the
# most that any step can.
WITHOUT = "no step at all"


def compare_iterations(mixed):
    runs = {
        "default": make_run(mixed=mixed),
        WITHOUT: make_run(mixed=mixed),
        "fused=True": make_run(mixed=mixed, fused=True),
        RECIPE: make_run(RECIPE, mixed=mixed),
    }
    opt = runs[WITHOUT].opt
    runs[WITHOUT].stepper = SimpleNamespace(
        param_groups=opt.param_groups, step=lambda: None, zero_grad=opt.zero_grad
    )
    return ob.compare(
        {name: lambda run=run: iterate(run, data[0]) for name, run in runs.items()},
        baseline="default",
        min_run_time_s=0.1 if quick else 1.0,
        device=device,
    )


float32_iterations = compare_iterations(mixed=False)
float32_iterations

# %%
mixed_iterations = compare_iterations(mixed=True)
mixed_iterations

# %%
# The share is the part of an iteration that goes away with the step. It bounds what a faster step can gain, whatever
# that step's own speed-up is.
rows = []
for name, _timed in (("float32", float32_iterations), ("mixed", mixed_iterations)):
    bound = _timed.speedup(WITHOUT).wall
    for step in ("fused=True", RECIPE):
        wall = _timed.speedup(step).wall
        rows.append((name, 1 - 1 / bound.value, bound.value, step, wall.value))
        print(f"{name}: {_timed.conclusion(step)}")
step_share = ob.Table(
    name="The step in an iteration",
    columns=("precision", "share", "most to gain [x]", "step", "gained [x]"),
    cells=tuple(rows),
)
step_share

# %%
# A step that is skipped
# ----------------------
# A scaler runs on a CPU too, so we can see on any device that it reaches the built step: one loss that is infinite, and
# the parameters stay what they are, while the scale is halved.
run = make_run(RECIPE, mixed=True)
run.scaler = make_scaler(enabled=True)
iterate(run, data[0])
before = [parameter.detach().clone() for parameter in run.model.parameters()]
run.scaler.scale(run.model(data[0]) * float("inf")).backward()
run.scaler.step(run.stepper)
run.scaler.update()
run.stepper.zero_grad()
for parameter, expected in zip(run.model.parameters(), before, strict=True):
    assert torch.equal(parameter, expected)
assert run.scaler.get_scale() == 512
iterate(run, data[1])
assert not torch.equal(next(run.model.parameters()), before[0])
print("skipped once, then taken again")

# %%
# A checkpoint in mid-run
# -----------------------
# We train, save, train on, load what was saved, and train on once more: the same losses, from one compile. A plain
# optimizer in another model goes on from the same checkpoint. If nothing but the model is loaded, the losses differ.
import io


def parts_of(run):
    return {name: getattr(run, name) for name in ("model", "opt", "sched", "scaler")}


def load(run, checkpoint, names=("model", "opt", "sched", "scaler")):
    checkpoint.seek(0)
    states = torch.load(checkpoint)
    for name in names:
        parts_of(run)[name].load_state_dict(states[name])
    return run


checkpoint = io.BytesIO()
with ob.capture_recompiles() as capture:
    run = make_run(RECIPE, mixed=True)
    run.stepper.step = capture.watch(run.stepper.step)
    train(run, data[:5])
    torch.save({k: part.state_dict() for k, part in parts_of(run).items()}, checkpoint)
    once = train(run, data[5:10])
    load(run, checkpoint)
    again = train(run, data[5:10])

plain = train(load(make_run(mixed=True), checkpoint), data[5:10])
for resumed in (again, plain):
    torch.testing.assert_close(resumed, once, rtol=0, atol=0.005)
forgetful = train(load(make_run(mixed=True), checkpoint, ["model"]), data[5:10])
assert (forgetful - once).abs().max() > 0.005
resume_log = capture.log
assert resume_log.n_compiles >= 1, "nothing was compiled"
assert resume_log.n_recompiles == 0
torch.set_num_threads(threads)
resume_log

# %%
# What this does not show
# -----------------------
# * What the share is for you. A step costs the same whatever the batch is, so a larger batch makes its share smaller.
#   Leave out the step and measure, as above.
# * What the scaler costs: it asks the device in every iteration whether the step is to be taken, and the host waits.
# * Compiling the model too, which changes the other part of the iteration.
