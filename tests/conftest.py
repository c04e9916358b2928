"""What the tests of all rooms share: hypothesis profiles, and the interpreters whose kernels are tested."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no failure: deadlines measure the machine, and CI repeats the same examples on each run.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


def pytest_configure() -> None:
    """Let interrupts interrupt: a run that a shell started in its background inherits that they are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", params=["ipykernel7", "ipykernel6"])
def kernel_python(request: pytest.FixtureRequest) -> str:
    """An interpreter to run kernels with, of either generation: they differ in all that happens while a cell runs.

    `make test` makes the environment of the older one and names it in FAIRQ_KERNEL6.
    """
    if request.param == "ipykernel7":
        return sys.executable
    python = os.environ.get("FAIRQ_KERNEL6") or str(ROOT / ".venv-k6" / "bin" / "python")
    if not Path(python).exists():
        # A run of the whole suite must not pass without it.
        outcome = pytest.fail if os.environ.get("CI") else pytest.skip
        outcome("no environment with ipykernel 6: `make test` makes it")
    return python


@pytest.fixture(autouse=True)
def no_policy_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the variables with which a developer's own shell would change the tests."""
    for name in [name for name in os.environ if name.startswith("FAIRQ_") and name != "FAIRQ_KERNEL6"]:
        monkeypatch.delenv(name)
