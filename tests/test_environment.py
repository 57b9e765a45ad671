import datetime
import getpass
import platform
import subprocess
from pathlib import Path

import pytest
import torch

import optimbench as ob
from optimbench.devices import pick_device, require_cuda
from optimbench.environment import collect_environment
from optimbench.errors import DeviceError

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")


@needs_no_cuda
def test_without_cuda_the_cpu_is_picked_and_the_reason_told() -> None:
    device, reason = pick_device()
    assert device == torch.device("cpu")
    assert "no CUDA" in reason
    with pytest.raises(DeviceError, match=r"a CUDA device is required: .*no CUDA"):
        require_cuda()


@needs_cuda
def test_a_gpu_that_torch_can_compile_for_is_picked() -> None:
    device, reason = pick_device()
    assert device.type == "cuda"
    assert torch.cuda.get_device_name() in reason
    assert require_cuda() == device


def test_a_gpu_below_the_needed_capability_is_passed_over_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the driver says of an old GPU; none is at hand.
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA TITAN Xp")
    device, reason = pick_device()
    assert device.type == "cpu"
    assert reason == "NVIDIA TITAN Xp has compute capability 6.1, and torch.compile needs 7.0"
    with pytest.raises(DeviceError, match=r"6\.1"):
        require_cuda()


def test_the_environment_says_what_it_must() -> None:
    found = collect_environment()
    assert found.device == pick_device().device.type
    assert found.torch == torch.__version__
    assert found.python == platform.python_version()
    assert found.optimbench == ob.__version__
    assert found.num_threads == torch.get_num_threads()
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(found.date)
    assert datetime.timedelta(0) <= age < datetime.timedelta(minutes=1)
    assert found.date[:10] in found.label


def test_the_environment_names_no_host_user_or_path() -> None:
    shown = str(collect_environment()) + repr(collect_environment())
    assert platform.node() not in shown
    assert str(Path.home()) not in shown
    assert str(Path.cwd()) not in shown
    assert f"'{getpass.getuser()}" not in shown


def test_the_commit_is_the_checkouts_and_local_changes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPTIMBENCH_COMMIT", raising=False)

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert collect_environment(tmp_path).commit is None
    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = collect_environment(tmp_path)
    assert clean.commit == git("rev-parse", "HEAD")[:12]
    assert not clean.commit_is_dirty
    (tmp_path / "file").write_text("2")
    assert collect_environment(tmp_path).commit_is_dirty


def test_a_copy_without_git_is_told_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTIMBENCH_COMMIT", "0123456789abcdef")
    assert collect_environment(tmp_path).commit == "0123456789ab"


@needs_cuda
def test_the_driver_of_a_gpu_is_known_where_nvidia_ml_py_is_installed() -> None:
    pytest.importorskip("pynvml")
    found = collect_environment()
    assert found.driver is not None
    assert found.other_processes is not None
    assert found.memory_bytes is not None
    assert found.memory_bytes > 2**30
