"""As many threads as there are cores for us, no more; and they sleep while they wait."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elman.training import threads
from elman.training.threads import advise_on_load, choose_threads, count_cores, prepare_environment


def test_what_is_asked_for_is_given() -> None:
    assert choose_threads(7) == 7


def test_otherwise_there_is_a_thread_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "count_cores", lambda: 8)
    assert choose_threads() == 8


def machine(root: Path, siblings: dict[int, str], quota: str = "max 100000") -> Path:
    for cpu, text in siblings.items():
        folder = root / f"devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    (root / "fs/cgroup").mkdir(parents=True)
    (root / "fs/cgroup/cpu.max").write_text(quota + "\n")
    return root


def test_hyper_threads_are_not_cores_and_a_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert count_cores(machine(tmp_path / "a", {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})) == 2
    assert count_cores(machine(tmp_path / "b", {0: "0", 1: "1", 2: "2", 3: "3"})) == 4
    assert count_cores(machine(tmp_path / "c", {0: "0", 1: "1", 2: "2", 3: "3"}, quota="150000 100000")) == 1
    assert count_cores(machine(tmp_path / "d", {0: "0", 1: "1", 2: "2", 3: "3"}, quota="300000 100000")) == 3
    assert count_cores(tmp_path / "nothing is known") == 4


def test_waiting_threads_sleep_unless_the_user_says_otherwise() -> None:
    environment: dict[str, str] = {}
    prepare_environment(environment)
    assert environment == {
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "1000",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    }
    given = {"OMP_WAIT_POLICY": "active", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}
    environment = dict(given)
    prepare_environment(environment)
    assert environment == given


def test_a_busy_machine_gets_a_word_of_advice() -> None:
    assert advise_on_load(1, load=50.0) is None
    assert advise_on_load(2, load=0.1) is None
    assert "--threads 1" in (advise_on_load(2, load=50.0) or "")


def test_threads_budget_and_plan_never_import_torch() -> None:
    code = "import sys, elman.training.threads, elman.training.budget, elman.training.plan_text; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
