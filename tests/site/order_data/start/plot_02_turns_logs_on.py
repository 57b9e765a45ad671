"""
Turns logs on
=============

And compiles.
"""

import logging

import torch

torch._logging.set_logs(recompiles=True, graph_breaks=True)
logging.getLogger().setLevel(logging.DEBUG)


@torch.compile(backend="eager", dynamic=False)
def total(x):
    print("a break")
    return x.sum()


for length in (2, 3):
    total(torch.ones(length))
