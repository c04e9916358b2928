"""What all rooms' tests share: hypothesis profiles and nothing else."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow machine is no failure: deadlines measure the machine, and CI repeats the same examples on each run.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))
