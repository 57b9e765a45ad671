r"""
Graph breaks and fullgraph=True
===============================

What a compiled step is made of where the compiler leaves its graph, and where ``fullgraph=True`` forbids it to.

**You will see**

* that ``fullgraph=True`` on a step of PyTorch's own optimizers raises, though its arithmetic is one graph;
* what an ``item()`` in the step does to it, and how to make a later recompile an error.

**Requirements:** PyTorch 2.11 or newer and a C++ compiler; a GPU is used where there is one. ``optimbench`` is a wheel
served by the site this page comes from (see *Install* there).
"""

# %%
# Asking for one graph
# --------------------
# ``fullgraph=True`` promises that everything is compiled into one graph, or an exception. Older recipes name it as an
# option for the optimizer's step.
import logging

import torch

import optimbench as ob

device, reason = ob.pick_device()
print(f"Running on {device.type}: {reason}.")
# PyTorch warns of each graph break by ``item()``; this page tells it in words.
torch._logging.set_logs(dynamo=logging.ERROR)


def make_adam(lr=0.01, **options):
    parameters = ob.make_parameters([(4, 4)] * 2, device=device)
    return torch.optim.Adam(parameters, lr=lr, **options)


def in_one_graph(step, *arguments, backend="eager"):
    try:
        torch.compile(step, fullgraph=True, backend=backend)(*arguments)
    except torch._dynamo.exc.TorchDynamoException as error:
        return f"raises: {str(error).splitlines()[0]}"
    return "one graph"


print(in_one_graph(make_adam(foreach=True).step))

# %%
# Why the graph is broken
# -----------------------
# ``step`` runs with gradients switched off, and the break comes right after the switch: what follows is compiled on its
# own, as a graph that needs no backward pass. The authors' comment says why: in one graph with the switch the compiler
# would allocate every parameter anew instead of updating it in place.
import inspect

print(inspect.getsource(torch.optim.Adam.step.__wrapped__.__code__))


# %%
# So the break does not cut the arithmetic. The proof: we take the function inside the wrappers, switch gradients off
# ourselves, and ask for one graph of that. A backend of our own counts the operations of each graph it is given.
def counting(graph_module, _example_inputs):
    nodes = graph_module.graph.nodes
    operations.append(sum(node.op.startswith("call_") for node in nodes))
    return graph_module.forward


operations = []
inner_step = inspect.unwrap(torch.optim.Adam.step)
with torch.no_grad():
    print(in_one_graph(inner_step, make_adam(foreach=True), backend=counting))
print(f"graphs: {len(operations)}, operations in it: {operations[0]}")
assert len(operations) == 1


# %%
# What else breaks it, and what that costs
# ----------------------------------------
# Now steps as people write them, without ``fullgraph``: around Adam's step, one that is skipped where the gradients are
# too large. For that ``item()`` brings a number to the host, where no graph can follow it. Scaling the gradients by a
# tensor needs no number.
def parameters_of(opt):
    return opt.param_groups[0]["params"]


def adam(opt):
    opt.step()


def adam_after_item(opt):
    norm = torch.stack([p.grad.norm() for p in parameters_of(opt)]).norm()
    if norm.item() < 100:
        opt.step()


def adam_after_tensor(opt):
    norm = torch.stack([p.grad.norm() for p in parameters_of(opt)]).norm()
    for parameter in parameters_of(opt):
        parameter.grad.mul_(torch.clamp(100 / norm, max=1.0))
    opt.step()


# %%
# Then a step of one's own, where the same stands in the loop over the parameters.
@torch.no_grad()
def loop_by_item(opt):
    for parameter in parameters_of(opt):
        if parameter.grad.norm().item() < 100:
            parameter.sub_(0.01 * parameter.grad)


@torch.no_grad()
def loop_by_tensor(opt):
    for parameter in parameters_of(opt):
        rate = torch.where(parameter.grad.norm() < 100, 0.01, 0.0)
        parameter.sub_(rate * parameter.grad)


# %%
# Each is taken three times eagerly and three times compiled, must give the same parameters, and gets a row: the
# operations in each of its graphs, the breaks other than the one on purpose, and what ``fullgraph=True`` says.
rows = []
for step in (adam, adam_after_item, adam_after_tensor, loop_by_item, loop_by_tensor):
    opt, eager_opt, third_opt = (make_adam(foreach=True) for _ in range(3))
    operations = []
    with ob.capture_recompiles() as capture:
        compiled_step = torch.compile(step, backend=counting)
        for _ in range(3):
            compiled_step(opt)
            step(eager_opt)
    torch.testing.assert_close(parameters_of(opt), parameters_of(eager_opt))
    breaks = {found.reason for found in capture.log.graph_breaks}
    others = "; ".join(why for why in sorted(breaks) if "graph_break()" not in why)
    allowed = in_one_graph(step, third_opt).split(":")[0]
    counts = " + ".join(map(str, operations)) or None
    rows.append((step.__name__, len(operations), counts, others or None, allowed))

graphs_of_a_step = ob.Table(
    name="What a compiled step is made of",
    columns=("step", "graphs", "operations", "breaks", "fullgraph=True"),
    cells=tuple(rows),
)
graphs_of_a_step

# %%
# Around Adam an ``item()`` costs a graph; the step itself stays whole. In the loop it ends the compiling: a loop with a
# break in it runs eagerly, and nothing says so. ``fullgraph=True`` would have. So it is worth having for a step of
# one's own: what breaks the graph on purpose is around PyTorch's own steps only.
assert len({counts.split(" + ")[-1] for _, _, counts, *_ in rows[:3]}) == 1
assert [graphs for _, graphs, *_ in rows[3:]] == [0, 1]

# %%
# Forbidding a recompile
# ----------------------
# What ``fullgraph=True`` is for graph breaks, a *stance* is for recompiles: under ``"fail_on_recompile"`` a call that
# would compile raises, the first compile included. So we set it after a first step, and change the learning rate.
guards = {}
for kind, lr in ("float", 0.01), ("tensor", torch.tensor(0.01, device=device)):
    torch.compiler.reset()
    opt = make_adam(lr, capturable=kind == "tensor" and device.type == "cuda")
    compiled_step = torch.compile(adam, backend="aot_eager")
    compiled_step(opt)
    opt.param_groups[0]["lr"] *= 0.9
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled_step(opt)
    except RuntimeError as error:
        guards[kind] = [line for line in str(error).splitlines() if "'lr'" in line]
        print(kind, *guards[kind], sep="\n")
assert list(guards) == ["float"], "a tensor is not compiled again, a float is"
torch._logging.set_logs()  # Back to the defaults.

# %%
# In a training loop the stance turns a silent loss into an exception with a reason, which is a good test and a harsh
# rule: for a long run, count with :func:`optimbench.capture_recompiles` over its first steps.
#
# What this does not show
# -----------------------
# More graphs are not slower by a fixed amount: each has its own guards and kernels, and what that costs is a matter of
# measuring. Distributed and compiled-autograd training have breaks of their own.
