"""What an eager step asks the device to do: how many operations, and the bytes they read and write."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Operations", "count_operations"]


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of one eager step.

    Attributes:
        count: How many there are; views and what has no tensor, which compute nothing, are left out.
        moved_bytes: Bytes that they read and write. Each reads its inputs and writes its results, since nothing is
            fused; an input that is changed in place counts twice, one that is given twice counts once.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> x = torch.ones(1000)
        >>> operations = ob.count_operations(lambda: x.mul(2).add(1))
        >>> operations.count, operations.moved_bytes  # Two operations, each reads and writes 4000 bytes.
        (2, 16000)
    """

    count: int
    moved_bytes: int


def count_operations(step: Callable[[], object]) -> Operations:
    """Count the operations of one call of an eager step, where PyTorch dispatches them.

    An operation on a list of tensors, as ``foreach=True`` makes them, is one; on a GPU it is one kernel or a few. Take
    a step before, or what makes the optimizer's state is counted too.

    Args:
        step: It is called once, and not compiled: PyTorch does not dispatch what compiled code does.

    Example:
        >>> import torch
        >>> import optimbench as ob
        >>> weight = torch.nn.Parameter(torch.ones(1000))
        >>> weight.grad = torch.ones(1000)
        >>> ob.count_operations(torch.optim.SGD([weight], lr=0.1, foreach=False).step)
        Operations(count=1, moved_bytes=12000)
    """
    with _Counter() as counter:
        step()
    return Operations(count=counter.count, moved_bytes=counter.moved_bytes)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self.moved_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formals = func._schema.arguments
        given = dict(zip((formal.name for formal in formals), args, strict=False), **kwargs)
        read = _tensors(given)
        written = _tensors([result, *[given.get(formal.name) for formal in formals if formal.is_write]])
        if not func.is_view and (read or written):
            self.count += 1
            self.moved_bytes += sum(tensor.nbytes for tensor in (*read.values(), *written.values()))
        return result


def _tensors(values: object) -> dict[int, torch.Tensor]:
    """The tensors in nested containers, each once."""
    return {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
