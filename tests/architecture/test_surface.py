"""The public names. A name that comes or goes is a visible change of this file."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import fairq_ipy
from fairq_ipy import errors, testing

ERRORS = [
    "BudgetExceededError",
    "BypassBlockedError",
    "ConfigurationError",
    "ContextTooLargeError",
    "EndpointError",
    "FairqError",
    "Finding",
    "PolicyError",
    "QueueFullError",
    "QueueTimeoutError",
    "Refused",
    "ShareError",
    "ShutDownError",
    "StreamReclaimedError",
    "TenantEvictedError",
    "TenantPausedError",
    "UnknownTenantError",
    "WouldDeadlockError",
    "refusal_types",
]

ROOT = sorted(
    [
        *(name for name in ERRORS if name != "refusal_types"),
        "Answer",
        "Session",
        "Snapshot",
        "aask",
        "ask",
        "async_http_client",
        "carry",
        "governed",
        "http_client",
        "load",
        "load_ipython_extension",
        "pause",
        "permit",
        "resume",
        "run",
        "session",
        "snapshot",
        "submit",
        "tenant",
        "unload_ipython_extension",
    ]
)

TESTING = [
    "Counts",
    "FakeClock",
    "Gate",
    "Message",
    "Pause",
    "Recorded",
    "Reply",
    "ScriptedEndpoint",
    "TicketMaker",
    "chat",
    "chunk",
    "cut",
    "echo",
    "embeddings",
    "endless",
    "error",
    "html",
    "json_reply",
    "plain",
    "raw",
    "sse",
    "stream",
    "ticket",
]


@pytest.mark.parametrize(
    ("module", "names"), [(fairq_ipy, ROOT), (errors, ERRORS), (testing, TESTING)], ids=["root", "errors", "testing"]
)
def test_the_public_names_are_these(module, names):
    assert sorted(module.__all__) == names


@pytest.mark.parametrize("module", [fairq_ipy, errors, testing], ids=["root", "errors", "testing"])
def test_every_public_name_is_there_and_documented(module):
    undocumented = [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))]
    assert not undocumented
    assert set(module.__all__) <= set(dir(module))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fairq_ipy"):
        _ = fairq_ipy.nothing_of_that_name


ERROR_TYPES = [getattr(errors, name) for name in ERRORS if name not in {"Finding", "refusal_types"}]


@pytest.mark.parametrize("kind", ERROR_TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_every_error_survives_being_copied_and_pickled(kind, again):
    error = kind("what to do next", tenant="logs", ticket=7, retry_after=1.5)
    twin = again(error)
    assert type(twin) is kind
    assert (str(twin), twin.tenant, twin.ticket, twin.retry_after) == ("what to do next", "logs", 7, 1.5)


def test_each_reason_names_one_error():
    kinds = errors.refusal_types()
    assert len(kinds) == len(ERROR_TYPES)
    assert all(kinds[kind.reason] is kind for kind in ERROR_TYPES)
