"""Rows 4 and 5: curves of losses that no change may move, and models of past releases that load and answer as they did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from reliability.row import Allowance, Count, Figure
from reliability.runner import ROOT
from tests.guards import cases

CURVES = Path(__file__).with_name("curves.json")
STEPS = 100
FAMILIES = ("rnn", "gru", "lstm", "transformer", "masked", "bilm", "seq2seq-attention", "tag-crf", "classify", "qa")
OTHER_TORCH = 1e-4  # relative, where the curve was made by another version of torch


def golden_curves(allowance: Allowance) -> Figure:
    """A hundred steps of every family against the curve that is kept, and the tests of every case."""
    kept = json.loads(CURVES.read_text())
    is_same = kept["made_by"] == made_by()
    count = Count()
    for name in FAMILIES:
        found = curve_of(name, allowance.folder)
        count.add(None if is_equal(found, kept["curves"][name], exactly=is_same) else f"{name}: another curve")
    how = "to the bit" if is_same else f"within {OTHER_TORCH} (kept: {kept['made_by']})"
    guards = _tests("test_training_gives_the_same")
    figure = count.figure(f" curves of {STEPS} steps {how}; {guards.text} cases of 8 steps with all their answers")
    return replace(figure, is_passed=figure.is_passed and guards.is_passed, failures=figure.failures + guards.failures)


def old_models(allowance: Allowance) -> Figure:
    """Every model of version 0.1.0 answers as it did, and its stopped runs go on to the same models."""
    loaded, resumed = _tests("test_models_of_version_0_1_0"), _tests("test_runs_that_version_0_1_0_stopped")
    return Figure(
        f"{loaded.text} models, {resumed.text} stopped runs of 0.1.0",
        loaded.is_passed and resumed.is_passed,
        loaded.failures + resumed.failures,
    )


def made_by() -> str:
    """What decides about the last bits: the version of torch, and the instructions that it uses here."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def curve_of(name: str, folder: Path) -> list[list[Any]]:
    """Step, training loss and validation loss of a training of a hundred steps."""
    folder.mkdir(exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        if not Path("text.train").exists():
            cases.write_data(folder)
        case = cases.CASES[name]
        settings = dict(case.settings) | {"train.steps": STEPS, "train.validate_steps": 20}
        cases.CASES["golden"] = replace(case, settings=settings)
        cases.train_case("golden", f"golden-{name}")
        return cases.read_curve(Path(f"golden-{name}"))
    finally:
        os.chdir(before)


def is_equal(found: list[list[Any]], wanted: list[list[Any]], *, exactly: bool) -> bool:
    """Whether two curves are the same, to the bit or nearly."""
    if exactly or len(found) != len(wanted):
        return found == wanted
    for one, other in zip(found, wanted, strict=True):
        for x, y in zip(one, other, strict=True):
            if (x is None) != (y is None) or (x is not None and abs(x - y) > OTHER_TORCH * max(1e-9, abs(y))):
                return False
    return True


def _tests(name: str) -> Figure:
    """Those tests of tests/guards whose names have this in them."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/guards", "-k", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    passed, failed = (re.search(rf"(\d+) {word}", done.stdout) for word in ("passed", "failed"))
    num_passed, num_failed = (int(found[1]) if found else 0 for found in (passed, failed))
    is_good = done.returncode == 0 and num_passed > 0
    failures = () if is_good else tuple(re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)[:5])
    return Figure(f"{num_passed}/{num_passed + num_failed}", is_good, failures)


def main() -> None:
    """Make the curves anew: only where a change of the losses is wanted, and said in CHANGELOG.md."""
    with tempfile.TemporaryDirectory() as folder:
        curves = {name: curve_of(name, Path(folder)) for name in FAMILIES}
    CURVES.write_text(json.dumps({"made_by": made_by(), "curves": curves}) + "\n")


if __name__ == "__main__":
    main()
