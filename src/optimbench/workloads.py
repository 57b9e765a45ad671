"""Seeded parameter sets with gradients: the same work for every recipe, on every machine.

Only parameters are made, no model: an optimizer sees nothing else. How many tensors there are and how large each is
decides how long a step takes, so a workload is a list of shapes.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
import torch

from optimbench.devices import usable_device
from optimbench.errors import InvalidArgumentError

__all__ = ["WORKLOADS", "Workload", "make_parameters"]

# The spread of the values: that of freshly initialised weights and of gradients after clipping, in order of magnitude.
_PARAMETER_STD = 0.02
_GRADIENT_STD = 0.01


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes of a set of parameters.

    Attributes:
        name: What it is called.
        description: What it stands for, in words.
        shapes: One for each parameter tensor, (n_tensors, n_dims).

    Example:
        >>> import optimbench as ob
        >>> mine = ob.Workload(name="mine", description="a layer and its bias", shapes=((20, 10), (20,)))
        >>> mine.n_tensors, mine.n_parameters
        (2, 220)
        >>> [parameter.shape for parameter in ob.make_parameters(mine)]
        [torch.Size([20, 10]), torch.Size([20])]
    """

    name: str
    description: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def n_tensors(self) -> int:
        """How many parameter tensors there are."""
        return len(self.shapes)

    @property
    def n_parameters(self) -> int:
        """How many numbers they hold together."""
        return sum(math.prod(shape) for shape in self.shapes)

    def scaled(self, scale: float) -> "Workload":
        """The same number of tensors, each with its first dimension multiplied by `scale` and rounded up.

        The number of tensors stays, because the host's part of a step grows with it.

        Args:
            scale: More than 0 and at most 1.

        Raises:
            InvalidArgumentError: The scale is not above 0 and at most 1.

        Example:
            >>> from optimbench.workloads import WORKLOADS
            >>> WORKLOADS["ten_layers"].scaled(0.01).shapes[0]
            (11, 1024)
        """
        if not 0 < scale <= 1:
            raise InvalidArgumentError(f"scale is {scale} (expected more than 0 and at most 1)")
        shapes = tuple((math.ceil(shape[0] * scale), *shape[1:]) for shape in self.shapes)
        return msgspec.structs.replace(self, shapes=shapes)


def _gpt2_shapes() -> tuple[tuple[int, ...], ...]:
    # GPT-2 small: 12 blocks of width 768, a vocabulary of 50257 tokens, 1024 positions; its output layer is the
    # embedding's own weight (Radford et al., Language Models are Unsupervised Multitask Learners, 2019).
    width, blocks = 768, 12
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    block = [*norm, *attention, *norm, *feed_forward]
    return ((50257, width), (1024, width), *block * blocks, *norm)


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            Workload(
                name="ten_layers",
                description="ten Linear(1024, 1024, bias=False): ten large tensors",
                shapes=((1024, 1024),) * 10,
            ),
            Workload(
                name="gpt2",
                description="GPT-2 small: 148 tensors, from 768 to 38.6 million numbers each",
                shapes=_gpt2_shapes(),
            ),
            Workload(
                name="many_small",
                description="300 tensors of 1024: nearly all of a step is launching kernels",
                shapes=((1024,),) * 300,
            ),
            Workload(
                name="billion",
                description="16 tensors of 8192 x 8192, 1.07 billion numbers: nearly all of a step is memory traffic",
                shapes=((8192, 8192),) * 16,
            ),
        )
    }
)


def make_parameters(
    workload: Workload | str | Iterable[tuple[int, ...]],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
    seed: int = 0,
) -> list[torch.nn.Parameter]:
    """Parameters with gradients, the same for the same seed on the same kind of device.

    Args:
        workload: A workload, the shape of each tensor, or a name: "ten_layers", "gpt2", "many_small" or "billion",
            described in ``optimbench.workloads.WORKLOADS``.
        device: Where they are made and stay.
        dtype: Of parameters and gradients.
        scale: Makes tensors smaller, not fewer, as `Workload.scaled` says; for CPUs and tests.
        seed: Of the normally distributed values.

    Returns:
        One parameter for each shape, each with `.grad` set.

    Raises:
        InvalidArgumentError: No workload has this name, the scale is out of range, or the device is neither the CPU
            nor a CUDA device.
        DeviceError: There is no such CUDA device.

    Example:
        >>> import optimbench as ob
        >>> parameters = ob.make_parameters("many_small")
        >>> len(parameters), parameters[0].grad.shape
        (300, torch.Size([1024]))
    """
    if isinstance(workload, str):
        if workload not in WORKLOADS:
            raise InvalidArgumentError(f"workload is {workload!r} (expected one of {', '.join(WORKLOADS)})")
        workload = WORKLOADS[workload]
    elif not isinstance(workload, Workload):
        workload = Workload(name="", description="", shapes=tuple(workload))
    device = usable_device(device)
    generator = torch.Generator(device).manual_seed(seed)
    made = []
    for shape in workload.scaled(scale).shapes:
        values = torch.empty(shape, device=device, dtype=dtype).normal_(0, _PARAMETER_STD, generator=generator)
        parameter = torch.nn.Parameter(values)
        parameter.grad = torch.empty_like(values).normal_(0, _GRADIENT_STD, generator=generator)
        made.append(parameter)
    return made
