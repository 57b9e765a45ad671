"""Carry the learning rate and the other hyperparameters from the user's optimizer to the one that works for it."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from optimbench.errors import RecipeError
from optimbench.recipes._copies import IMPLEMENTATION_SETTINGS


class Hyperparameters:
    """Follows the param groups of one optimizer in those of another; a call that finds no change costs under a µs.

    Where the update is compiled or captured, the learning rate is a tensor of its own for each group, written only
    when the user's value changed: a float would be a constant there.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, worker: torch.optim.Optimizer, *, tensor_lr: bool) -> None:
        self._optimizer = optimizer
        self._followers = [
            _Follower(group, working, optimizer.defaults, tensor_lr)
            for group, working in zip(optimizer.param_groups, worker.param_groups, strict=True)
        ]

    def follow(self) -> bool:
        """Take over what changed.

        Returns:
            Whether anything but a learning rate changed, which a compiled or captured update holds as a constant.

        Raises:
            RecipeError: Groups or parameters were added to or taken from the optimizer.
        """
        groups = self._optimizer.param_groups
        if len(groups) != len(self._followers):
            raise _changed_groups(f"{len(self._followers)} param groups, now {len(groups)}")
        changed = False
        for follower, group in zip(self._followers, groups, strict=True):
            lr = group["lr"]
            if lr is not follower.lr or (follower.lr_version is not None and lr._version != follower.lr_version):
                follower.set_lr(lr)
            if follower.pick(group) != follower.constants:
                follower.set_constants(group)
                changed = True
            if len(group["params"]) != follower.n_params:
                raise _changed_groups(f"{follower.n_params} parameters in a group, now {len(group['params'])}")
        return changed

    def learning_rates(self) -> tuple[float, ...]:
        """The learning rate that the update uses now, one for each group."""
        return tuple(float(follower.working["lr"]) for follower in self._followers)


class _Follower:
    """One group: what was last seen in the user's, and what is written into the working one."""

    def __init__(
        self, group: Mapping[str, Any], working: dict[str, Any], defaults: Mapping[str, Any], tensor_lr: bool
    ) -> None:
        # Keys that schedulers add, such as initial_lr, are not hyperparameters of the update.
        names = [name for name in defaults if name in group and name not in ("lr", *IMPLEMENTATION_SETTINGS)]
        self._names = names
        self.pick: Callable[[Mapping[str, Any]], Any] = operator.itemgetter(*names) if names else lambda _: ()
        self.constants = self.pick(group)
        self.working = working
        self.n_params = len(group["params"])
        self.lr: Any = None
        self.lr_version: int | None = None
        tensors = working["params"]
        if tensor_lr and tensors:
            device = tensors[0].device if all(tensor.is_cuda for tensor in tensors) else torch.device("cpu")
            is_double = all(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
            working["lr"] = torch.zeros((), dtype=torch.float64 if is_double else torch.float32, device=device)
        else:
            working["lr"] = 0.0
        self.set_lr(group["lr"])

    def set_lr(self, lr: Any) -> None:
        """Write a learning rate. A float is filled in by a kernel, so the host does not wait for the device."""
        is_same = isinstance(lr, float) and isinstance(self.lr, float) and lr == self.lr
        self.lr = lr
        if is_same:
            return
        self.lr_version = lr._version if isinstance(lr, torch.Tensor) else None
        target = self.working["lr"]
        if not isinstance(target, torch.Tensor):
            # Eager implementations get a float: with a tensor and capturable=False torch falls back to its slow loop.
            self.working["lr"] = float(lr)
        elif isinstance(lr, torch.Tensor) and lr.device == target.device:
            target.copy_(lr.detach().reshape(()))
        else:
            target.fill_(float(lr))

    def set_constants(self, group: Mapping[str, Any]) -> None:
        """Write the other hyperparameters."""
        self.constants = self.pick(group)
        self.working.update({name: group[name] for name in self._names})


def _changed_groups(what: str) -> RecipeError:
    return RecipeError(f"the step was built for {what}: close it and build it again")
