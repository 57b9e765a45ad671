"""
Compiles
========

A function under the name that other pages give to theirs, and a step.
"""

import torch

import optimbench as ob


@torch.compile(backend="eager", dynamic=False)
def total(x):
    return x.sum()


for length in (2, 3, 4):
    total(torch.ones(length))
print("graphs:", torch._dynamo.utils.counters["stats"]["unique_graphs"])

# %%
# A float learning rate that changes.
weight = torch.nn.Parameter(torch.ones(4, 4))
weight.grad = torch.ones(4, 4)
optimizer = torch.optim.SGD([weight], lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
log = ob.log_compiles(optimizer.step, calls=12, backend="eager", after_each=lambda _: scheduler.step())
print("compiled:", log.n_compiles, "recompiled:", log.n_recompiles, "limit hit:", log.limit_hit)
counts = ob.Table(
    name="Counts", columns=("what", "number"), cells=(("compiled", log.n_compiles), ("again", log.n_recompiles))
)
counts
