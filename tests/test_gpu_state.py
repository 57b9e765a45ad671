"""A GPU that is throttled or shared: seen, kept in the recording, said on the page, and not recorded unasked.

No GPU is needed: what the driver and torch would say of one is faked where they are asked, and nowhere else.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pynvml
import pytest
import torch
from sphinx_gallery.scrapers import ImagePathIterator

import record as record_script
from optimbench import Table, collect_environment, load_recording
from optimbench._gpu_state import read_gpu_state
from optimbench_site.result_tabs import result_tabs
from optimbench_site.scraper import scrape_results

UUID = "GPU-01234567"


class FakeGpu:
    """What NVML says of the one GPU there is; a test changes it."""

    def __init__(self) -> None:
        self.throttled_by = 0
        self.pids = [os.getpid()]
        self.broken: set[str] = set()

    def ask(self, function: str, answer: Any) -> Any:
        if function in self.broken:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return answer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu()

    def handle_of(uuid: str) -> str:
        assert uuid == UUID
        return "the handle"

    answers: dict[str, Any] = {
        "nvmlInit": lambda: made.ask("nvmlInit", None),
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.159",
        "nvmlDeviceGetHandleByUUID": handle_of,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: made.ask("throttle", made.throttled_by),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: made.ask(
            "processes", [SimpleNamespace(pid=pid) for pid in made.pids]
        ),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    properties = SimpleNamespace(uuid=UUID[4:], name="NVIDIA H200", total_memory=2**37, major=9, minor=0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    return made


def test_a_healthy_gpu_has_nothing_against_it(gpu: FakeGpu) -> None:
    gpu.throttled_by = pynvml.nvmlClocksThrottleReasonGpuIdle | pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting
    found = collect_environment()
    assert (found.device_name, found.driver) == ("NVIDIA H200", "580.159")
    assert (found.throttle_reasons, found.other_processes) == ((), 0)
    assert found.notes() == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("SwPowerCap", "power cap"),
        ("HwSlowdown", "hardware slowdown"),
        ("HwThermalSlowdown", "hardware thermal slowdown"),
        ("SwThermalSlowdown", "software thermal slowdown"),
        ("HwPowerBrakeSlowdown", "power brake"),
    ],
)
def test_lowered_clocks_are_named(reason: str, words: str, gpu: FakeGpu) -> None:
    gpu.throttled_by = getattr(pynvml, f"nvmlClocksThrottleReason{reason}")
    assert collect_environment().throttle_reasons == (words,)


@pytest.mark.parametrize(
    ("pids", "others"),
    [
        ([os.getpid()], 0),
        ([os.getpid(), 1, 2], 2),
        # In a container the driver names processes by other numbers, or none: then one of them is this one.
        ([70001], 0),
        ([70001, 70002], 1),
        ([], 0),
    ],
)
def test_other_processes_are_counted(pids: list[int], others: int, gpu: FakeGpu) -> None:
    gpu.pids = pids
    assert collect_environment().other_processes == others


def test_what_the_driver_does_not_tell_is_unknown(gpu: FakeGpu) -> None:
    gpu.broken = {"throttle", "processes"}
    state = read_gpu_state(UUID)
    assert (state.driver, state.throttle_reasons, state.other_processes) == ("580.159", (), None)
    gpu.broken = {"nvmlInit"}
    assert read_gpu_state(UUID).driver is None


def test_it_is_in_the_recording_on_the_page_and_refused(
    gpu: FakeGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTIMBENCH_COMMIT", "0123456789ab")
    script = tmp_path / "plot_01_shared.py"
    script.write_text("# A tutorial.\n")
    variables: dict[str, Any] = {"first": Table(name="First", columns=("a",), cells=((1,),))}
    block_vars = {
        "src_file": str(script),
        "target_file": str(script),
        "example_globals": variables,
        "image_path_iterator": ImagePathIterator(str(tmp_path / "plot_01_shared_{0:03}.png")),
    }
    gpu.throttled_by = pynvml.nvmlClocksThrottleReasonSwPowerCap
    scrape_results(None, block_vars, {})
    # By the next block the clocks have recovered, and someone else has come and is gone again with the third.
    gpu.throttled_by, gpu.pids = 0, [os.getpid(), 1]
    variables["second"] = Table(name="Second", columns=("a",), cells=((2,),))
    scrape_results(None, block_vars, {})
    gpu.pids = [os.getpid()]
    variables["third"] = Table(name="Third", columns=("a",), cells=((3,),))
    scrape_results(None, block_vars, {})

    results = tmp_path / "plot_01_shared.results.json"
    recorded = load_recording(results)
    machine = recorded.scripts[script.stem].environment
    assert (machine.throttle_reasons, machine.other_processes) == (("power cap",), 1)

    page = " ".join(node.astext() for node in result_tabs(script.stem, "third", recorded, []))
    assert "The clocks were lowered (power cap)" in page
    assert "1 other processes were on the GPU" in page

    words = ["--results", str(results), "--folder", str(tmp_path / "stored")]
    assert record_script.main(words) == 1
    assert "the GPU's clocks are lowered: power cap (--allow-throttled)" in capsys.readouterr().err
    assert not (tmp_path / "stored").exists()
    assert record_script.main([*words, "--allow-throttled"]) == 0
    assert load_recording(tmp_path / "stored" / "nvidia-h200.json") == recorded


def test_the_foot_of_every_page_says_it(gpu: FakeGpu) -> None:
    template = (Path(record_script.__file__).parent / "_templates" / "page.html").read_text()
    stub = "{% block footer %}{% endblock %}"
    environment = jinja2.Environment(loader=jinja2.DictLoader({"!page.html": stub, "page.html": template}))

    def foot() -> str:
        return environment.get_template("page.html").render(machine=collect_environment())

    assert "lowered" not in foot()
    gpu.throttled_by, gpu.pids = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, [os.getpid(), 1, 2]
    assert "The clocks were lowered (hardware thermal slowdown)" in foot()
    assert "2 other processes were on the GPU" in foot()
