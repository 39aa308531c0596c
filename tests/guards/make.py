"""Make the references anew: `python -m tests.guards.make`. Only for a change that is meant to move a number.

`python -m tests.guards.make --archive FILE.tar.gz` makes an archive of models and stopped runs of this version instead.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.guards.cases import CASES, MIXTURE, STOPPED_STEP, call, describe_case, train_case, write_data

REFERENCES = Path(__file__).with_name("references.json")


def main() -> None:
    """Train every case in an empty directory."""
    archive = Path(sys.argv[2]).absolute() if sys.argv[1:2] == ["--archive"] else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_data(Path())
        found = {}
        for name in CASES:
            train_case(name, name)
            found[name] = describe_case(name, name)
        call("mix", *MIXTURE, "--valid", "text.valid", "--out", "mixture", "--json")
        found["mixture"] = {"verbs": {"evaluate": call("evaluate", "mixture", "text.valid", "--json")}}
        if archive is None:
            REFERENCES.write_text(json.dumps(found, indent=1) + "\n")
            return
        with tarfile.open(archive, "w:gz") as packed:
            packed.add("mixture")
            for name, case in CASES.items():
                packed.add(name)
                if case.is_kept:
                    train_case(name, f"{name}.stopped", stop_after=STOPPED_STEP)
                    steps = sorted(Path(f"{name}.stopped/checkpoints").glob("step-*"))
                    for old in steps[:-1]:
                        shutil.rmtree(old)
                    packed.add(f"{name}.stopped")


if __name__ == "__main__":
    main()
