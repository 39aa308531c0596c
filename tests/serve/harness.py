"""lm-evaluation-harness against a server, as a program of its own: URL FOLDER MODEL... -> what it found, as one line of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

TASKS = ("elman_rolling", "elman_choice", "elman_write")


def main(url: str, folder: str, names: list[str]) -> dict[str, Any]:
    """The answers to each document, by model and task."""
    tasks = TaskManager(include_path=folder, include_defaults=False)
    found: dict[str, Any] = {}
    for name in names:
        results = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={"model": name, "base_url": f"{url}/v1/completions", "num_concurrent": 1},
            tasks=list(TASKS),
            task_manager=tasks,
            log_samples=True,
            bootstrap_iters=0,
        )
        found[name] = {task: [answer(task, sample) for sample in _sorted(results["samples"][task])] for task in TASKS}
    return found


def _sorted(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(samples, key=lambda sample: int(sample["doc_id"]))


def answer(task: str, sample: dict[str, Any]) -> Any:
    """What the model said of one document."""
    responses = [one[0] for one in sample["resps"]]
    match task:
        case "elman_choice":
            return [one[0] for one in responses]
        case "elman_rolling":
            return responses[0][0] if isinstance(responses[0], list | tuple) else responses[0]
        case _:
            return responses[0]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3:])))
