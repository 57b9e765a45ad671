"""Flat buffers: the parameters of a group as views of one tensor, and their gradients as views of another.

An optimizer that treats each element alike cannot tell one large tensor from many small ones, but its step can: there
is one kernel to launch, one guard to check and one small graph to compile. Parameters share a buffer when they have the
same group, data type and device, and the same state: an optimizer keeps one step count for the whole buffer.
"""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from optimbench.errors import NoGradientError, RecipeError
from optimbench.recipes._copies import adopt_scalar, is_scalar
from optimbench.recipes._gradients import moved_parameter, stale_gradient

# Every parameter starts at a multiple of as many bytes as torch's allocator for CUDA gives, so that kernels and matrix
# products can read the views as fast as tensors of their own.
_ALIGNMENT_BYTES = 512


class _Member(NamedTuple):
    """One parameter's place in its buffer; the offset counts elements, the position all parameters of the optimizer."""

    position: int
    parameter: torch.Tensor
    offset: int

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        """This parameter's part of a buffer, in its shape and strides."""
        return buffer.as_strided(self.parameter.size(), self.parameter.stride(), self.offset)


class FlatBuffer:
    """Parameters that are views of one tensor, `values`, whose gradient holds theirs.

    Attributes:
        values: The parameter to give to an optimizer, (n_elements,), padding included; the padding stays zero.
        members: The parameters and their places.
    """

    def __init__(self, parameters: Sequence[tuple[int, torch.Tensor]]) -> None:
        """Lay out parameters of one data type and device, each given with its index."""
        _, first = parameters[0]
        step = max(1, _ALIGNMENT_BYTES // first.element_size())
        self.members: list[_Member] = []
        n_elements = 0
        for index, parameter in parameters:
            self.members.append(_Member(index, parameter, n_elements))
            n_elements += -(-parameter.numel() // step) * step
        self.values = torch.nn.Parameter(torch.zeros(n_elements, dtype=first.dtype, device=first.device))
        self.values.grad = torch.zeros_like(self.values)
        # Held only while gradients may move: a CUDA graph's watch tells by their being freed that they moved.
        self._views: list[torch.Tensor] | None = None
        for member in self.members:
            view = member.view(self.values.data)
            view.copy_(member.parameter.detach())
            member.parameter.data = view
        self._addresses = [member.parameter.data_ptr() for member in self.members]

    @property
    def gradient(self) -> torch.Tensor:
        """The buffer of the gradients, (n_elements,)."""
        assert self.values.grad is not None  # Set when the buffer was made; nobody else has it.
        return self.values.grad

    def attach_gradients(self, *, may_move: bool) -> None:
        """Copy the gradients in and make each parameter's a view of the buffer, which backward adds to in place."""
        views = [member.view(self.gradient) for member in self.members]
        for member, view in zip(self.members, views, strict=True):
            view.copy_(_dense_gradient(member))
            member.parameter.grad = view
        self._views = views if may_move else None

    def gather_gradients(self) -> None:
        """Copy in the gradients that were replaced since the last step, and make them views again.

        Raises:
            StaleGradientError: A gradient vanished; torch would leave its parameter alone, a buffer cannot.
            RecipeError: A parameter moved.
        """
        moved_to, moved = [], []
        for member, view, address in zip(self.members, self._views or (), self._addresses, strict=True):
            parameter = member.parameter
            if parameter.data_ptr() != address:
                raise moved_parameter(member.position, parameter)
            gradient = parameter.grad
            if gradient is not view:
                if gradient is None:
                    raise stale_gradient(member.position, parameter)
                moved_to.append(view)
                moved.append(gradient)
                parameter.grad = view
        if moved:
            torch._foreach_copy_(moved_to, moved)

    def dissolve(self) -> None:
        """Give every parameter, and its gradient, memory of its own again."""
        for member in self.members:
            parameter = member.parameter
            parameter.data = parameter.detach().clone()
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clone()

    def is_uniform(self, states: Mapping[torch.Tensor, Mapping[str, Any]]) -> bool:
        """Whether the scalars of the state are equal among the parameters, so that one of each can stand for all."""
        return len({_signature(states.get(p, {}), p) for _, p, _ in self.members}) == 1

    def pack_state(self, states: Mapping[torch.Tensor, Mapping[str, Any]], group: Mapping[str, Any]) -> dict[str, Any]:
        """The state of the buffer from that of its parameters.

        Args:
            states: The state of each parameter; scalars are equal among them.
            group: The group whose settings say where scalars are kept.

        Raises:
            RecipeError: An entry has neither one number for the tensor nor one for each element.
        """
        packed: dict[str, Any] = {}
        first = self.members[0].parameter
        for name, value in states.get(first, {}).items():
            if value is None:
                continue
            if is_scalar(name, value, first):
                packed[name] = adopt_scalar(name, value, group, self.values)
                continue
            packed[name] = torch.zeros_like(self.values, dtype=value.dtype, requires_grad=False)
            for member in self.members:
                part = states[member.parameter][name]
                if part.shape != member.parameter.shape:
                    raise RecipeError(
                        f"state {name!r} of a parameter of shape {tuple(member.parameter.shape)} has shape"
                        f" {tuple(part.shape)}, so the update is not element by element and flat buffers cannot be used"
                    )
                member.view(packed[name]).copy_(part)
        return packed

    def unpack_state(
        self, packed: Mapping[str, Any], group: Mapping[str, Any]
    ) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        """The state of each parameter as plain torch keeps it; tensors are views of the buffer's."""
        for member in self.members:
            yield (
                member.parameter,
                {
                    name: adopt_scalar(name, value, group, member.parameter)
                    if is_scalar(name, value, self.values)
                    else member.view(value)
                    for name, value in packed.items()
                },
            )


def lay_out(optimizer: torch.optim.Optimizer) -> list[list[FlatBuffer]]:
    """Move all parameters that have a gradient into buffers.

    Returns:
        The buffers of each param group.

    Raises:
        NoGradientError: No parameter has a gradient.
    """
    alike: list[dict[Any, list[tuple[int, torch.Tensor]]]] = []
    indices = itertools.count()
    for group in optimizer.param_groups:
        alike.append({})
        for index, parameter in zip(indices, group["params"], strict=False):
            if parameter.grad is not None:
                key = (parameter.dtype, parameter.device, _signature(optimizer.state.get(parameter, {}), parameter))
                alike[-1].setdefault(key, []).append((index, parameter))
    if not any(alike):
        raise NoGradientError("no parameter has a gradient; call backward() before the first step")
    return [[FlatBuffer(parameters) for parameters in by_key.values()] for by_key in alike]


def _signature(state: Mapping[str, Any], parameter: torch.Tensor) -> tuple[tuple[str, object], ...]:
    """What has to be equal among parameters that share a buffer: which entries the state has, and its scalars."""
    return tuple(
        (name, _number(value) if is_scalar(name, value, parameter) else value.dtype)
        for name, value in sorted(state.items())
        if value is not None
    )


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a stretch of memory without gaps or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _dense_gradient(member: _Member) -> torch.Tensor:
    gradient = member.parameter.grad
    if gradient is None:
        raise stale_gradient(member.position, member.parameter)
    if gradient.layout != torch.strided:
        raise RecipeError("a gradient is sparse, and flat buffers hold dense ones: use the recipe 'forloop'")
    return gradient.detach()


def _number(value: Any) -> object:
    return value.item() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
