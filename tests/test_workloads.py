"""The parameter sets that everything is measured on."""

import math

import pytest
import torch

from optimbench.errors import InvalidArgumentError
from optimbench.workloads import WORKLOADS, Workload, make_parameters


@pytest.mark.parametrize(
    ("name", "n_tensors", "n_parameters"),
    [
        ("ten_layers", 10, 10_485_760),
        # 124,439,808 is the published size of GPT-2 small.
        ("gpt2", 148, 124_439_808),
        ("many_small", 300, 307_200),
        ("billion", 16, 1_073_741_824),
    ],
)
def test_sizes(name: str, n_tensors: int, n_parameters: int) -> None:
    workload = WORKLOADS[name]
    assert (workload.name, workload.n_tensors, workload.n_parameters) == (name, n_tensors, n_parameters)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_scaled_down_keeps_every_tensor(name: str) -> None:
    full, small = WORKLOADS[name], WORKLOADS[name].scaled(0.001)
    assert small.n_tensors == full.n_tensors
    for shape, scaled in zip(full.shapes, small.shapes, strict=True):
        assert scaled == (math.ceil(shape[0] * 0.001), *shape[1:])


def test_made_parameters_have_gradients_and_repeat() -> None:
    first = make_parameters("ten_layers", scale=0.01, seed=3)
    again = make_parameters("ten_layers", scale=0.01, seed=3)
    other = make_parameters("ten_layers", scale=0.01, seed=4)
    assert [tuple(parameter.shape) for parameter in first] == [(11, 1024)] * 10
    for a, b, c in zip(first, again, other, strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert a.is_leaf
        assert torch.equal(a, b)
        assert torch.equal(a.grad, b.grad)
        assert not torch.equal(a, c)
        assert not torch.equal(a, a.grad)
    assert not torch.equal(first[0], first[1])


def test_shapes_of_ones_own() -> None:
    made = make_parameters([(3, 2), (5,)], seed=3)
    assert [tuple(parameter.shape) for parameter in made] == [(3, 2), (5,)]
    workload = Workload(name="own", description="", shapes=((3, 2), (5,)))
    for parameter, expected in zip(made, make_parameters(workload, seed=3), strict=True):
        assert torch.equal(parameter, expected)


def test_data_type() -> None:
    (parameter, *_) = make_parameters("many_small", dtype=torch.bfloat16, scale=0.01)
    assert parameter.grad is not None
    assert (parameter.dtype, parameter.grad.dtype) == (torch.bfloat16, torch.bfloat16)


@pytest.mark.parametrize("scale", [0, -1, 1.5, math.nan])
def test_scale_out_of_range(scale: float) -> None:
    with pytest.raises(InvalidArgumentError, match="scale is"):
        make_parameters("ten_layers", scale=scale)


def test_unknown_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'resnet' \(expected one of ten_layers, gpt2"):
        make_parameters("resnet")
