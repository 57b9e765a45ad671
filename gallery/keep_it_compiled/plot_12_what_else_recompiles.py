r"""
What else recompiles a step
===========================

Six things other than the learning rate that make a compiled optimizer step compile again, each with its remedy.

**You will see**

* how often each of them recompiles the step, and PyTorch's reason in words;
* the same steps with the remedy, which recompiles none, and an obvious remedy that does not help.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Three steps, and after each something that changes. The backend ``"aot_eager"`` generates no code and compiles for
# the same values as Inductor (:doc:`checked here <plot_11_every_scheduler>`). ``foreach=True`` is a GPU's default.
import copy
import functools

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
CALLS, rows = 3, []
log_of = functools.partial(ob.log_compiles, calls=CALLS, backend="aot_eager")
make_parameters = functools.partial(ob.make_parameters, [(4, 4)] * 2, device=device)


def make_adam(kind=torch.optim.Adam, **options):
    return kind(make_parameters(), lr=0.01, foreach=True, **options)


def parameters_of(opt):
    return opt.param_groups[0]["params"]


def add_row(change, log, remedy, remedied):
    assert log.n_recompiles > 0, f"{change} does not recompile the step here"
    assert remedied.n_compiles > remedied.n_recompiles == 0, f"{remedy}: no remedy"
    reason = next(each.reasons[0] for each in log.compilations if each.is_recompile)
    rows.append((change, log.n_recompiles, remedy, remedied.n_recompiles, reason))


# %%
# Gradients that are None
# -----------------------
# A parameter without a gradient is skipped, so the code changes with the set of those that have one, as where a part of
# the model is used in some steps only. Here one gradient is missing after every other step.
def taking_turns(opt, missing):
    opt.step()  # Creates the state.
    weight = parameters_of(opt)[0]
    grads = [weight.grad, missing(weight.grad)]
    return log_of(opt.step, after_each=lambda n: setattr(weight, "grad", grads[n % 2]))


with_none, with_zeros = make_adam(), make_adam()
gradients_log = taking_turns(with_none, missing=lambda _: None)
gradients_log

# %%
# A set that was there before fits the compile made for it. The remedy is zeros instead of ``None``, as
# ``zero_grad(set_to_none=False)`` leaves them. It is not quite the same: Adam goes on by its momentum and weight decay.
_remedied = taking_turns(with_zeros, missing=torch.zeros_like)
add_row("gradients None in turn", gradients_log, "zeros instead of None", _remedied)
difference = parameters_of(with_none)[0] - parameters_of(with_zeros)[0]
print(f"differs by {difference.abs().max().item():.1e} after {CALLS} steps")


# %%
# A checkpoint that is loaded
# ---------------------------
# :meth:`~torch.optim.Optimizer.load_state_dict` puts new tensors into the optimizer's state, and compiled code belongs
# to those it was compiled with. When training resumes, load before the first compiled step. Where a run goes back to a
# checkpoint, copy the values into the tensors that are there.
def copy_state(opt, saved):
    pairs = zip(opt.state.values(), saved["state"].values(), strict=True)
    for own, values in pairs:
        for name, tensor in values.items():
            own[name].copy_(tensor)


def going_back(opt, load):
    opt.step()
    saved = copy.deepcopy(opt.state_dict())
    # What is loaded may become the state itself and change with it: load a copy.
    return log_of(opt.step, after_each=lambda _: load(opt, copy.deepcopy(saved)))


loaded, copied = make_adam(), make_adam()
_log = going_back(loaded, torch.optim.Adam.load_state_dict)
add_row("load_state_dict", _log, "copy into the state", going_back(copied, copy_state))
torch.testing.assert_close(parameters_of(loaded), parameters_of(copied))

# %%
# A param group that is added
# ---------------------------
# As when a layer is unfrozen. Give the optimizer all groups from the start; those that wait have a learning rate of
# zero, as a tensor, and gradients, if only zeros. Their moments and step count run from the start.
growing, new = make_adam(), [{"params": make_parameters()} for _ in range(CALLS)]
_log = log_of(growing.step, after_each=lambda n: growing.add_param_group(new[n - 1]))
lrs = [torch.tensor(lr, device=device) for lr in (0.01, 0.0)]
groups = [{"params": make_parameters(), "lr": lr} for lr in lrs]
complete = torch.optim.Adam(groups, capturable=device.type == "cuda")
_remedied = log_of(complete.step, after_each=lambda _: lrs[1].fill_(0.01))
add_row("add_param_group", _log, "all groups from the start", _remedied)

# %%
# A weight decay that changes
# ---------------------------
# A Python float, so one compile for each value. A tensor is no remedy: Adam asks whether the decay is zero, which
# depends on data, and the graph breaks. The step does not recompile, but its arithmetic is not compiled either.
decayed = make_adam(torch.optim.AdamW, weight_decay=0.1)
(group,) = decayed.param_groups
_log = log_of(decayed.step, after_each=lambda n: group.update(weight_decay=0.1 / 2**n))
decay = torch.tensor(0.1, device=device)
weight_decay_log = log_of(make_adam(torch.optim.AdamW, weight_decay=decay).step)
assert any("branching" in found.reason for found in weight_decay_log.graph_breaks)
weight_decay_log

# %%
# AdamW's decay is a factor on the parameter before the update. We write that line ourselves, with a tensor.
undecayed = make_adam(torch.optim.AdamW, weight_decay=0.0)


def decay_and_step():
    with torch.no_grad():
        for parameter in parameters_of(undecayed):
            parameter.mul_(1 - 0.01 * decay)
    undecayed.step()


_remedied = log_of(decay_and_step, after_each=lambda _: decay.div_(2))
add_row("weight_decay", _log, "decay by a tensor, outside AdamW", _remedied)
torch.testing.assert_close(parameters_of(decayed), parameters_of(undecayed))


# %%
# Another optimizer
# -----------------
# Compiled code belongs to one optimizer: its parameters are part of it. A sweep compiles ``Adam.step`` once for each,
# and all share its limit, also where each has a function of its own.
def sweep(before_each=lambda: None):
    with ob.capture_recompiles() as capture:
        step_of = torch.compile(lambda opt: opt.step(), backend="aot_eager")
        for opt in [make_adam() for _ in range(CALLS)]:
            before_each()
            step_of(opt)
    return capture.log


add_row("a new optimizer", sweep(), "torch.compiler.reset", sweep(torch.compiler.reset))

# %%
# Every optimizer is still compiled, but anew: the limit counts from zero. Where several take turns, do not reset: each
# is compiled once, and ``torch._dynamo.config.recompile_limit`` must be at least their number.
#
# Another number of CPU threads
# -----------------------------
# All compiled code has it as a guard, also for a GPU. :class:`torch.utils.benchmark.Timer` sets one thread unless
# ``num_threads`` says otherwise: what was compiled before is compiled again there. The rule behind all six: what is no
# tensor is part of the code, and so is which tensors there are.
threads = torch.get_num_threads()
_log = log_of(make_adam().step, after_each=lambda n: torch.set_num_threads(threads + n))
torch.set_num_threads(threads)
add_row("CPU threads", _log, "the same number all along", log_of(make_adam().step))
remedies = ob.Table(
    name=f"Recompiles in {CALLS} steps, backend aot_eager",
    columns=("what changes", "recompiles", "remedy", "recompiles then", "first reason"),
    cells=tuple(rows),
)
remedies

# %%
# What this does not show
# -----------------------
# What a few recompiles cost: at the start of a long run, seconds. Changes that never end are what leads to the limit.
