"""How the tests of this room read policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairq_ipy import policy
from fairq_ipy.core.model import Policy
from fairq_ipy.errors import Finding, PolicyError

HEAD = "version: 1\nendpoint: {base_url: demo}\n"
"""The least that a policy says; what a test adds begins in line 3."""


@pytest.fixture(scope="session")
def rules() -> Callable[[str], Policy]:
    """Return the rules of a policy that says `text` after its head."""
    return lambda text: policy.loads(HEAD + text, environ={}).rules


@pytest.fixture(scope="session")
def found() -> Callable[..., list[Finding]]:
    """Return what is wrong with a policy that says `text` after its head."""

    def read(text: str, *, head: str = HEAD, environ: Mapping[str, str] | None = None) -> list[Finding]:
        with pytest.raises(PolicyError) as caught:
            policy.loads(head + text, "team.yaml", environ={} if environ is None else environ)
        assert caught.value.findings
        return list(caught.value.findings)

    return read


@pytest.fixture(scope="session")
def only(found: Callable[..., list[Finding]]) -> Callable[..., Finding]:
    """Return the one thing that is wrong."""

    def read(text: str, **options: Any) -> Finding:
        findings = found(text, **options)
        assert len(findings) == 1, "\n".join(map(str, findings))
        return findings[0]

    return read
