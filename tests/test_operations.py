"""Operations and bytes of eager steps, counted by hand."""

import pytest
import torch

from optimbench.operations import Operations, count_operations

N = 1000
BYTES = 4 * N


def parameters(n_tensors: int) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.ones(N)) for _ in range(n_tensors)]
    for parameter in made:
        parameter.grad = torch.ones(N)
    return made


# SGD adds the gradient to the parameter: two read, one written. With foreach it is one operation for all tensors.
@pytest.mark.parametrize(("foreach", "count"), [(False, 3), (True, 1)])
def test_sgd(foreach: bool, count: int) -> None:
    step = torch.optim.SGD(parameters(3), lr=0.1, foreach=foreach).step
    assert count_operations(step) == Operations(count=count, moved_bytes=3 * 3 * BYTES)


def test_new_results_are_written_and_views_move_nothing() -> None:
    first, second = torch.ones(N), torch.ones(N)
    # One new tensor of two; a view; one new tensor of one, given twice.
    assert count_operations(lambda: (first + second).view(10, -1)) == Operations(count=1, moved_bytes=3 * BYTES)
    assert count_operations(lambda: first * first) == Operations(count=1, moved_bytes=2 * BYTES)


def test_a_result_that_is_given_is_written_once() -> None:
    first, out = torch.ones(N), torch.empty(N)
    counted = count_operations(lambda: torch.neg(first, out=out))
    # PyTorch hands `out` over as an argument, so it counts as read too.
    assert counted == Operations(count=1, moved_bytes=3 * BYTES)


def test_eager_adam_moves_more_than_twice_the_least_bytes() -> None:
    optimizer = torch.optim.Adam(parameters(2), lr=0.1, foreach=True)
    optimizer.step()
    counted = count_operations(optimizer.step)
    # Eighteen numbers a parameter instead of seven; the two step counts are eight bytes read and written.
    assert counted.moved_bytes // (2 * BYTES) == 18


def test_the_step_is_taken_once() -> None:
    (parameter,) = parameters(1)
    count_operations(torch.optim.SGD([parameter], lr=0.25).step)
    assert torch.equal(parameter, torch.full((N,), 0.75))
