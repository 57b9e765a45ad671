"""Whether tutorials can be executed in processes forked from the one that builds."""

import pytest
import torch

from optimbench_site.page_process import is_barred_from_gpu


def test_a_fork_of_a_process_that_has_used_the_driver_is_barred(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("the tests' own process may have used the GPU")
    assert not is_barred_from_gpu()
    # What torch answers in a forked process once its parent has asked for the number of devices.
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert is_barred_from_gpu()
