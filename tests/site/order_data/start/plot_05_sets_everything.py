"""
Sets everything
===============

Settings of torch and of Python.
"""

import os
import sys
import warnings

import torch

torch._dynamo.config.recompile_limit = 2
torch._inductor.config.max_fusion_size = 3
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.optim.SGD.step = None
os.environ["OPTIMBENCH_LEFT"] = "left"
os.chdir("/")
sys.path.insert(0, "/nowhere")
warnings.simplefilter("error")
print(torch.ones(1).dtype)
