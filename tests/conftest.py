"""What every test relies on."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is there; tests run side by side

from hypothesis import HealthCheck, settings

# Time is not a property of a parser: on a busy machine a deadline fails for nothing.
settings.register_profile("elman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elman")
