"""
Draws numbers
=============

From every generator.
"""

import random

import numpy as np
import torch

print(f"{random.random():.6f} {np.random.rand():.6f} {torch.rand(()).item():.6f}")
torch.manual_seed(5)
torch.use_deterministic_algorithms(True)
