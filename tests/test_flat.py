"""Flat buffers: the model stays usable, gradients are found where they are, checkpoints are those of plain torch."""

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from optimbench.errors import RecipeError, StaleGradientError
from optimbench.recipes import Step, build_step, why_not
from optimbench.recipes._flat import FlatBuffer, is_dense, lay_out
from optimizers import ELEMENTWISE, assert_same, make_small, parameters_of, train

# torch 2.11 warns of this whatever check_invariants is.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")

# A recipe without compiling for what does not depend on the implementation.
FAST = "flat_fused"


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


def step_of(optimizer: Optimizer) -> Step:
    """A flat step of any optimizer, without compiling C++."""
    recipe = FAST if why_not(optimizer, FAST) is None else "flat_compiled"
    return build_step(optimizer, recipe, backend="eager")


def buffers_of(step: Step) -> list[FlatBuffer]:
    assert step._worker is not None
    return step._worker._all_buffers()


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    """A checkpoint, through a file."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file)
    return loaded


# The buffer itself.


def test_parameters_and_gradients_are_views_with_their_values_and_strides() -> None:
    matrix, empty, scalar = torch.randn(3, 5).t(), torch.zeros(0, 4), torch.tensor(7.0)
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    values = [matrix, empty, scalar, image]
    parameters = [torch.nn.Parameter(value.clone(memory_format=torch.preserve_format)) for value in values]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape)
    gradients = [parameter.grad for parameter in parameters]
    buffer = FlatBuffer(list(enumerate(parameters)))
    buffer.attach_gradients(may_move=True)
    for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
        assert gradient is not None
        assert parameter.grad is not None
        assert torch.equal(parameter, value)
        assert torch.equal(parameter.grad, gradient)
        assert parameter.stride() == parameter.grad.stride() == value.stride()
        assert parameter.untyped_storage().data_ptr() == buffer.values.untyped_storage().data_ptr()
        assert parameter.grad.untyped_storage().data_ptr() == buffer.gradient.untyped_storage().data_ptr()
        assert parameter.data_ptr() % 4 == 0
    offsets = [parameter.storage_offset() * 4 for parameter in parameters]
    assert [offset % 512 for offset in offsets] == [0, 0, 0, 0]
    assert offsets[3] == 1024
    # The parts are disjoint and what lies between them stays zero.
    with torch.no_grad():
        for parameter in parameters:
            parameter.fill_(1)
    assert int(buffer.values.sum()) == sum(value.numel() for value in values)


def test_dissolve_gives_memory_back() -> None:
    parameters = make_small()
    before = copy.deepcopy([(parameter.detach(), parameter.grad) for parameter in parameters])
    buffer = FlatBuffer(list(enumerate(parameters)))
    buffer.attach_gradients(may_move=True)
    buffer.dissolve()
    assert len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == len(parameters)
    for parameter, (value, gradient) in zip(parameters, before, strict=True):
        assert parameter.grad is not None
        assert gradient is not None
        assert torch.equal(parameter, value)
        assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize(
    ("tensor", "dense"),
    [
        (torch.zeros(3, 4), True),
        (torch.zeros(3, 4).t(), True),
        (torch.zeros(2, 1, 3).transpose(0, 2), True),
        (torch.zeros(()), True),
        (torch.zeros(0, 3), True),
        (torch.zeros(3, 4)[:, :2], False),
        (torch.zeros(3, 1).expand(3, 4), False),
        (torch.zeros(8)[::2], False),
    ],
)
def test_is_dense(tensor: torch.Tensor, dense: bool) -> None:
    assert is_dense(tensor) is dense


def test_groups_data_types_and_states_are_kept_apart() -> None:
    first, second, third, fourth = make_small()
    third.data = third.data.double()
    third.grad = torch.ones_like(third)
    groups: list[dict[str, Any]] = [{"params": [first, second, third]}, {"params": [fourth], "lr": 0.5}]
    optimizer = torch.optim.Adam(groups)
    # One parameter is a step behind: its step count is not the others'.
    gradient, second.grad = second.grad, None
    optimizer.step()
    second.grad = gradient
    members = [[[member.parameter for member in b.members] for b in buffers] for buffers in lay_out(optimizer)]
    found = [[[id(parameter) for parameter in part] for part in parts] for parts in members]
    assert found == [[[id(first)], [id(second)], [id(third)]], [[id(fourth)]]]


# A model in training.


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(1, 3, (3, 3))
    # Not contiguous in the usual order.
    convolution.weight.data = convolution.weight.data.permute(0, 1, 3, 2)
    model = torch.nn.Sequential(
        convolution, torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(27, 4), torch.nn.Tanh()
    )
    # Not trained at all, and no gradient.
    model.register_parameter("frozen", torch.nn.Parameter(torch.ones(2), requires_grad=False))
    return model


def make_optimizer(model: torch.nn.Module) -> Optimizer:
    convolution: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    for name, parameter in model.named_parameters():
        (convolution if name.startswith("0.") else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": convolution}, {"params": others, "lr": 0.02, "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=0.1)


def fit(
    model: torch.nn.Module,
    optimizer: Optimizer,
    step: Callable[[], object],
    *,
    clear: Callable[[], object] | None = None,
    first: int = 0,
) -> None:
    for index in range(first, first + 5):
        generator = torch.Generator().manual_seed(index)
        # Two backward passes accumulate.
        for _ in range(2):
            model(torch.randn(2, 1, 5, 5, generator=generator)).square().sum().backward()
        step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        (clear or optimizer.zero_grad)()


@pytest.mark.parametrize("how", ["step.zero_grad", "zero_grad", "set_to_none"])
@pytest.mark.parametrize("recipe", ["flat_fused", "flat_compiled"])
def test_a_model_trains_as_in_plain_torch(recipe: str, how: str) -> None:
    model, plain = make_model(), make_model()
    optimizer, reference = make_optimizer(model), make_optimizer(plain)
    step = build_step(optimizer, recipe, backend="eager")
    ways: dict[str, Callable[[], object]] = {
        "step.zero_grad": step.zero_grad,
        "zero_grad": lambda: optimizer.zero_grad(set_to_none=False),
        # Then backward makes new tensors, which the step has to find.
        "set_to_none": optimizer.zero_grad,
    }
    fit(model, optimizer, step, clear=ways[how])
    fit(plain, reference, reference.step)
    assert_same(optimizer, reference)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_model_state_is_loaded_into_the_buffers() -> None:
    model, plain = make_model(), make_model()
    optimizer, reference = make_optimizer(model), make_optimizer(plain)
    step = build_step(optimizer, FAST)
    start = copy.deepcopy(model.state_dict())
    fit(model, optimizer, step, clear=step.zero_grad)
    fit(plain, reference, reference.step)
    model.load_state_dict(start)
    plain.load_state_dict(start)
    for name, value in start.items():
        assert torch.equal(model.state_dict()[name], value)
    fit(model, optimizer, step, clear=step.zero_grad, first=5)
    fit(plain, reference, reference.step, first=5)
    assert_same(optimizer, reference)


@pytest.mark.parametrize("move", [lambda model: model.to(torch.float64), lambda model: model.half()])
def test_a_moved_model_is_an_error(move: Callable[[torch.nn.Module], object]) -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = build_step(optimizer, FAST)
    fit(model, optimizer, step, clear=step.zero_grad)
    move(model)
    with pytest.raises(RecipeError, match=r"moved to other memory after the step was built, for example by \.to\(\)"):
        step()


def test_moving_to_where_it_is_changes_nothing() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    step = build_step(optimizer, FAST)
    fit(model, optimizer, step, clear=step.zero_grad)
    model.to("cpu", torch.float32)
    fit(model, optimizer, step, clear=step.zero_grad)


def test_a_vanished_gradient_is_an_error() -> None:
    optimizer = torch.optim.Adam(make_small())
    step = build_step(optimizer, FAST)
    step()
    before = [parameter.detach().clone() for parameter in parameters_of(optimizer)]
    parameters_of(optimizer)[2].grad = None
    with pytest.raises(StaleGradientError, match=r"the gradient of parameter 2, of shape \(1,\), is None"):
        step()
    for parameter, value in zip(parameters_of(optimizer), before, strict=True):
        assert torch.equal(parameter, value)


def test_a_gradient_that_comes_later_is_an_error() -> None:
    parameters = make_small()
    parameters[1].grad = None
    optimizer = torch.optim.Adam(parameters)
    step = build_step(optimizer, FAST)
    before = parameters[1].detach().clone()
    step()
    assert torch.equal(parameters[1], before)
    parameters[1].grad = torch.ones_like(parameters[1])
    with pytest.raises(StaleGradientError, match=r"parameter 1, of shape \(5,\), had no gradient at the step's first"):
        step()
    step.close()
    step = build_step(optimizer, FAST)
    step()
    assert not torch.equal(parameters[1], before)


def test_replaced_gradients_become_views_again() -> None:
    optimizer, reference = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    step = build_step(optimizer, FAST)
    step()
    reference.step()
    for both in (optimizer, reference):
        for parameter in parameters_of(both):
            parameter.grad = torch.full_like(parameter, 0.3)
    step()
    reference.step()
    assert_same(optimizer, reference)
    (buffer,) = buffers_of(step)
    for parameter in parameters_of(optimizer):
        assert parameter.grad is not None
        assert parameter.grad.untyped_storage().data_ptr() == buffer.gradient.untyped_storage().data_ptr()


def test_sparse_gradient_at_the_first_step() -> None:
    (weight,) = make_small(shapes=[(4, 2)])
    dense, weight.grad = weight.grad, None
    optimizer = torch.optim.SGD([weight])
    step = build_step(optimizer, FAST)
    weight.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (4, 2), check_invariants=True)
    with pytest.raises(RecipeError, match="a gradient is sparse"):
        step()
    weight.grad = dense
    optimizer.step()


# Checkpoints.


@pytest.mark.parametrize("name", list(ELEMENTWISE))
def test_checkpoint_from_plain_torch_into_flat_buffers_and_back(name: str) -> None:
    make = ELEMENTWISE[name]
    plain, flat = make(make_small()), make(make_small())
    train(plain, plain.step, 4)
    flat.load_state_dict(state_of(plain))
    for parameter, trained in zip(parameters_of(flat), parameters_of(plain), strict=True):
        parameter.data.copy_(trained.data)
    step = step_of(flat)
    train(flat, step, 3, first=4)
    train(plain, plain.step, 3, first=4)
    assert_same(flat, plain)
    # And back, into an optimizer that never had a step.
    resumed = make([torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters_of(flat)])
    for parameter, trained in zip(parameters_of(resumed), parameters_of(flat), strict=True):
        parameter.grad = torch.zeros_like(trained)
    resumed.load_state_dict(state_of(flat))
    train(resumed, resumed.step, 3, first=7)
    train(plain, plain.step, 3, first=7)
    assert_same(resumed, plain)


def test_state_is_what_plain_torch_keeps() -> None:
    flat, plain = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    train(flat, build_step(flat, FAST), 3)
    train(plain, plain.step, 3)
    mine, theirs = state_of(flat), state_of(plain)
    for index, state in theirs["state"].items():
        for name, value in state.items():
            got = mine["state"][index][name]
            assert (got.shape, got.dtype, got.device) == (value.shape, value.dtype, value.device)
            assert got.stride() == value.stride()
    counts = [state["step"] for state in flat.state_dict()["state"].values()]
    assert len({count.data_ptr() for count in counts}) == len(counts), "a plain step would count a shared one up twice"


@pytest.mark.parametrize("name", ["Adam", "SGD with momentum", "NAdam", "ASGD"])
def test_loading_between_steps_goes_on_from_there(name: str) -> None:
    make = ELEMENTWISE[name]
    flat, plain = make(make_small()), make(make_small())
    step = step_of(flat)
    train(flat, step, 3)
    train(plain, plain.step, 3)
    middle = state_of(plain)
    train(flat, step, 3, first=3)
    train(plain, plain.step, 3, first=3)
    buffers = buffers_of(step)
    for both in (flat, plain):
        both.load_state_dict(copy.deepcopy(middle))
    # Asked for again before the next step, it is what was loaded.
    assert_same(flat, plain)
    train(flat, step, 3, first=3)
    train(plain, plain.step, 3, first=3)
    assert_same(flat, plain)
    assert buffers_of(step) == buffers, "the state fits: a graph could have gone on"


def test_loading_a_state_with_several_step_counts_splits_the_buffer() -> None:
    flat, plain = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    step = build_step(flat, FAST)
    train(flat, step, 3)
    train(plain, plain.step, 3)
    checkpoint = state_of(plain)
    checkpoint["state"][1]["step"] += 5
    for both in (flat, plain):
        both.load_state_dict(copy.deepcopy(checkpoint))
    train(flat, step, 3, first=3)
    train(plain, plain.step, 3, first=3)
    assert_same(flat, plain)
    assert len(buffers_of(step)) == 2


def test_loading_an_empty_state_starts_afresh() -> None:
    flat, plain = torch.optim.Adam(make_small()), torch.optim.Adam(make_small())
    step = build_step(flat, FAST)
    start = state_of(flat)
    train(flat, step, 3)
    train(plain, plain.step, 3)
    for both in (flat, plain):
        both.load_state_dict(copy.deepcopy(start))
    train(flat, step, 3, first=3)
    train(plain, plain.step, 3, first=3)
    assert_same(flat, plain)


def test_state_that_is_not_element_by_element_is_refused() -> None:
    (weight,) = make_small(shapes=[(4, 2)])
    optimizer = torch.optim.Adam([weight])
    optimizer.step()
    optimizer.state[weight]["exp_avg_sq"] = torch.ones(4)
    step = build_step(optimizer, FAST)
    with pytest.raises(RecipeError, match=r"state 'exp_avg_sq' of a parameter of shape \(4, 2\) has shape \(4,\)"):
        step()
    assert weight.untyped_storage().nbytes() == 32
    assert not hasattr(optimizer, "_optimbench_step")


@pytest.mark.parametrize("recipe", ["flat_fused", "flat_compiled"])
def test_closed_step_leaves_everything_with_the_optimizer(recipe: str) -> None:
    flat, plain = torch.optim.AdamW(make_small()), torch.optim.AdamW(make_small())
    step = build_step(flat, recipe, backend="eager")
    train(flat, step, 3)
    step.close()
    train(flat, flat.step, 3, first=3)
    train(plain, plain.step, 6)
    assert_same(flat, plain)
