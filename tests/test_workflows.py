"""The workflows: what may run where, with which rights, and that all of it can be tried at home."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / ".github" / "workflows"
NAMES = ["ci.yml", "publish.yml"]
# YAML 1.1 reads the key `on` as a truth value.
ON = True
PINNED = re.compile(r"^\s*(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
RUNS = re.compile(r"python -m nox -s (?P<session>\w+)(?: -- [\w./ -]+)?")
INSTALLS_NOX = "python -m pip install --constraint constraints.txt nox"
# What else a job may use: nothing that runs a text of ours.
ACTIONS = {
    "actions/checkout",
    "actions/deploy-pages",
    "actions/download-artifact",
    "actions/setup-python",
    "actions/upload-artifact",
    "actions/upload-pages-artifact",
    "peter-evans/create-pull-request",
    "re-actors/alls-green",
}
# The longest that a job may hold its machine.
MOST_MINUTES = 120


def workflow(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def jobs(name: str) -> dict[str, dict[str, Any]]:
    return dict(workflow(name)["jobs"])


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in NAMES:
        for job, content in jobs(name).items():
            for step in content["steps"]:
                yield f"{name}: {job}", step


def sessions_of(name: str) -> list[str]:
    return [
        found["session"]
        for job in jobs(name).values()
        for step in job["steps"]
        if (found := RUNS.fullmatch(step.get("run", "")))
    ]


def test_there_are_no_others() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == NAMES


def test_a_gpu_never_runs_what_a_stranger_wrote() -> None:
    with_gpu = [(name, key) for name in NAMES for key, job in jobs(name).items() if "gpu" in str(job["runs-on"])]
    assert with_gpu == [("publish.yml", "build")]
    triggers = workflow("publish.yml")[ON]
    assert set(triggers) == {"schedule", "workflow_dispatch"}
    job = jobs("publish.yml")["build"]
    assert job["runs-on"] == ["self-hosted", "gpu"]
    assert job["if"] == "github.ref == 'refs/heads/main'"
    assert {
        str(job["runs-on"]) for name in NAMES for key, job in jobs(name).items() if (name, key) not in with_gpu
    } == {"ubuntu-latest"}


def test_everything_else_of_publish_waits_for_main_and_for_the_checks() -> None:
    needs = {key: job.get("needs", []) for key, job in jobs("publish.yml").items()}
    assert needs == {
        "build": [],
        "check": ["build"],
        "deploy": ["check"],
        "regressions": ["build"],
        "propose": ["check"],
    }
    # A job that needs a skipped one is skipped, unless it has a condition of its own.
    assert [key for key, job in jobs("publish.yml").items() if "if" in job] == ["build"]


@pytest.mark.parametrize("name", NAMES)
def test_rights_are_given_job_by_job(name: str) -> None:
    assert workflow(name)["permissions"] == {}
    given = {key: job["permissions"] for key, job in jobs(name).items()}
    expected: dict[str, dict[str, str]] = {key: {"contents": "read"} for key in given}
    if name == "ci.yml":
        expected["required"] = {}
    else:
        expected["deploy"] = {"pages": "write", "id-token": "write"}
        expected["propose"] = {"contents": "write", "pull-requests": "write"}
    assert given == expected


def test_no_job_knows_a_secret_and_no_checkout_keeps_the_token() -> None:
    for name in NAMES:
        assert "secrets." not in (FOLDER / name).read_text()
    checkouts = [step for _, step in steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert len(checkouts) >= len(NAMES)
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_actions_are_pinned_to_a_commit_with_its_version_beside_it() -> None:
    lines = [line for name in NAMES for line in (FOLDER / name).read_text().splitlines() if "uses:" in line]
    assert len(lines) == sum("uses" in step for _, step in steps())
    assert [line for line in lines if not PINNED.match(line)] == []
    used = {line.split("uses: ")[1] for line in lines}
    # One commit for each action.
    assert {pin.split("@")[0] for pin in used} == ACTIONS
    assert len(used) == len(ACTIONS)


def test_jobs_run_sessions_of_nox_and_nothing_else() -> None:
    # A shell that wants colours gets them here, too.
    environment = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    listed = subprocess.run(
        [sys.executable, "-m", "nox", "--list"],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    known = set(re.findall(r"^[*-] (\w+)", listed, re.MULTILINE))
    assert {"lint", "docs"} <= known
    for where, step in steps():
        run = step.get("run")
        if run is None or run == INSTALLS_NOX:
            continue
        found = RUNS.fullmatch(run)
        assert found, f"{where} runs {run!r}"
        assert found["session"] in known, f"{where} runs {run!r}"


def test_ci_covers_what_a_change_must_pass() -> None:
    assert set(sessions_of("ci.yml")) == {"lint", "tests", "minimums", "docs", "site", "build", "audit"}
    pythons = jobs("ci.yml")["tests"]["strategy"]["matrix"]["python"]
    assert len(pythons) == 2
    assert set(workflow("ci.yml")[ON]) == {"pull_request", "push"}


def test_one_job_waits_for_all_others_of_ci_even_if_one_fails() -> None:
    required = jobs("ci.yml")["required"]
    assert set(required["needs"]) == jobs("ci.yml").keys() - {"required"}
    assert required["if"] == "always()"
    assert required["steps"][0]["with"] == {"jobs": "${{ toJSON(needs) }}"}


def test_publish_records_compares_and_checks_what_it_built() -> None:
    runs = [step["run"] for step in jobs("publish.yml")["build"]["steps"] if "run" in step and "if" not in step]
    assert runs == ["python -m nox -s record -- --check", "python -m nox -s docs -- --require-cuda"]
    assert sessions_of("publish.yml") == ["record", "docs", "site", "record", "diff"]


def test_nothing_from_the_gpus_machine_reaches_the_checkout_of_a_job_that_may_push() -> None:
    # It could hold a hook of git. So the recording is packed where the results have been read without trust.
    kept = {
        step["with"]["name"]: key
        for key, job in jobs("publish.yml").items()
        for step in job["steps"]
        if "/upload-artifact@" in step.get("uses", "")
    }
    for job in jobs("publish.yml").values():
        if job["permissions"].get("contents") == "write":
            fetched = [step["with"]["name"] for step in job["steps"] if "/download-artifact@" in step.get("uses", "")]
            assert fetched
            assert "gpu" not in str([jobs("publish.yml")[kept[name]]["runs-on"] for name in fetched])


def test_a_prepared_image_is_left_as_it_is() -> None:
    job = jobs("publish.yml")["build"]
    assert job["container"]["image"] == "${{ vars.GPU_IMAGE }}"
    assert job["env"]["NOX_DEFAULT_VENV_BACKEND"] == "${{ vars.GPU_IMAGE && 'none' || 'virtualenv' }}"
    installing = [
        step for step in job["steps"] if "setup-python" in step.get("uses", "") or step.get("run") == INSTALLS_NOX
    ]
    assert [step["if"] for step in installing] == ["${{ !vars.GPU_IMAGE }}"] * 2


@pytest.mark.parametrize("name", NAMES)
def test_no_job_runs_for_ever_and_no_two_of_a_kind_at_once(name: str) -> None:
    assert all(0 < job["timeout-minutes"] <= MOST_MINUTES for job in jobs(name).values())
    assert workflow(name)["concurrency"]["group"]
    # A publication that has begun is finished; of a pull request only the newest state counts.
    assert workflow("publish.yml")["concurrency"]["cancel-in-progress"] is False


def test_nothing_that_others_can_write_becomes_a_command() -> None:
    # An expression in a command is replaced before the shell reads it.
    assert [(where, step["run"]) for where, step in steps() if "${{" in step.get("run", "")] == []
