"""Requests made by a machine from the schema: every status that comes back is one that the schema tells of."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.serve.running import running

CASES = int(os.environ.get("ELMAN_CASES", "8"))  # of each operation


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_request_of_the_schema_fails(model: Path) -> None:
    statuses: Counter[int] = Counter()
    with running([model]) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 15
        for operation in operations:
            _check(operation, statuses)
    assert set(statuses) <= {200, 204, 400, 404, 405, 415}, statuses


def _check(operation: Any, statuses: Counter[int]) -> None:
    @settings(
        max_examples=CASES,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        answer = case.call(timeout=60)
        statuses[answer.status_code] += 1
        assert answer.status_code < 500, (case.path, answer.text[:300])
        case.validate_response(answer, checks=[status_code_conformance])

    check()
