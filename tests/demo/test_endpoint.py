"""The demo endpoint over real HTTP: OpenAI's shapes, and the habits of a shared server."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from fairq_ipy.demo import endpoint
from fairq_ipy.demo.answers import plan
from fairq_ipy.demo.endpoint import DemoServer
from fairq_ipy.errors import ConfigurationError

FAST = 200.0
REVIEW = "Review `parse_line`. [#17]"


@pytest.fixture
def server() -> Iterator[DemoServer]:
    with endpoint.start(speed=FAST) as running:
        yield running


def ask(server: DemoServer, text: str = REVIEW, **more: Any) -> httpx.Response:
    body = {"model": "demo-small", "messages": [{"role": "user", "content": text}], **more}
    return httpx.post(f"{server.base_url}/chat/completions", json=body)


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    datas = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]
    assert datas[-1] == "[DONE]"
    return [json.loads(data) for data in datas[:-1]]


def test_a_whole_answer_has_the_planned_text_and_usage(server: DemoServer) -> None:
    answer = ask(server).json()
    expected = plan([REVIEW])
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": expected.text}
    assert answer["usage"]["prompt_tokens"] == expected.prompt_tokens
    assert answer["usage"]["completion_tokens"] == len(expected.pieces)


@pytest.mark.parametrize("speed", [20.0, 1000.0])
def test_a_stream_carries_the_same_text_in_pieces(speed: float) -> None:
    with endpoint.start(speed=speed) as server:
        got = chunks(ask(server, stream=True))
    text = "".join(choice["delta"].get("content", "") for chunk in got for choice in chunk["choices"])
    assert text == plan([REVIEW]).text
    assert got[-1]["choices"][0]["finish_reason"] == "stop"
    assert all("usage" not in chunk for chunk in got)


def test_a_stream_ends_with_usage_when_it_is_asked_for(server: DemoServer) -> None:
    got = chunks(ask(server, stream=True, stream_options={"include_usage": True}))
    assert got[-1]["choices"] == []
    assert got[-1]["usage"]["completion_tokens"] == len(plan([REVIEW]).pieces)


def test_the_openai_sdk_understands_all_of_it(server: DemoServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="any") as client:
        messages: Any = [{"role": "user", "content": [{"type": "text", "text": REVIEW}]}]
        answer = client.chat.completions.create(model="demo-small", messages=messages, max_tokens=12)
        assert answer.choices[0].finish_reason == "length"
        with client.chat.completions.create(model="demo-small", messages=messages, stream=True) as stream:
            text = "".join(part.choices[0].delta.content or "" for part in stream)
        assert text == plan([REVIEW]).text
        assert [model.id for model in client.models.list()] == ["demo-small", "demo-embedding"]
        one, other = client.embeddings.create(model="demo-embedding", input=["a b", "b a"]).data
        assert one.embedding == pytest.approx(other.embedding)
        assert sum(value * value for value in one.embedding) == pytest.approx(1.0)
        assert client.completions.create(model="demo-small", prompt=REVIEW).choices[0].text == plan([REVIEW]).text
        with client.completions.create(model="demo-small", prompt=REVIEW, stream=True) as old:
            assert "".join(part.choices[0].text for part in old) == plan([REVIEW]).text


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("chat/completions", b"{", "not valid JSON"),
        ("chat/completions", b"\xff\xfe", "not valid JSON"),
        ("chat/completions", b"[]", "must be a JSON object"),
        ("chat/completions", b"{}", "'messages'"),
        ("chat/completions", b'{"messages": []}', "'messages'"),
        ("chat/completions", b'{"messages": ["hi"]}', "Each of 'messages'"),
        ("chat/completions", b'{"messages": [{}], "max_tokens": 0}', "'max_tokens'"),
        ("chat/completions", b'{"messages": [{}], "max_tokens": true}', "'max_tokens'"),
        ("completions", b"{}", "'prompt'"),
        ("embeddings", b'{"input": []}', "'input'"),
        ("embeddings", b'{"input": [1]}', "'input'"),
    ],
)
def test_what_makes_no_sense_is_a_400_that_says_why(server: DemoServer, path: str, body: bytes, says: str) -> None:
    answer = httpx.post(f"{server.base_url}/{path}", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert says in answer.json()["error"]["message"]
    assert server.stats().arrivals == 0


def test_a_path_that_is_not_there_is_named(server: DemoServer) -> None:
    answer = httpx.post(f"{server.base_url}/v1/chat/completions", json={})
    assert answer.status_code == 404
    assert "POST /v1/v1/chat/completions" in answer.json()["error"]["message"]


def test_a_wrong_method_is_told_in_the_same_shape(server: DemoServer) -> None:
    answer = httpx.get(f"{server.base_url}/chat/completions")
    assert answer.status_code == 405
    assert "GET /v1/chat/completions" in answer.json()["error"]["message"]


def test_more_than_the_cap_is_429_and_names_no_time() -> None:
    with endpoint.start(concurrency=1, speed=0.001) as server, _open_stream(server):
        answer = ask(server)
        assert answer.status_code == 429
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
        assert "retry-after" not in answer.headers
        assert (server.stats().in_flight, server.stats().refused_429) == (1, 1)


def test_a_429_names_a_time_when_the_server_is_told_to() -> None:
    with endpoint.start(concurrency=1, speed=0.001, retry_after=1.5) as server, _open_stream(server):
        assert ask(server).headers["retry-after"] == "1.5"


def test_more_than_the_limit_per_minute_is_429_with_the_true_time() -> None:
    with endpoint.start(requests_per_minute=1, speed=FAST, retry_after=0) as server:
        first, second = ask(server), ask(server)
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("1", "0")
    assert second.status_code == 429
    assert 50 < int(second.headers["retry-after"]) <= 60


class _open_stream:  # noqa: N801 - reads as a statement
    """A client that streams, and the moment it hangs up."""

    def __init__(self, server: DemoServer) -> None:
        self.client = httpx.Client()
        body = {"messages": [{"role": "user", "content": REVIEW}], "stream": True}
        self.request = self.client.build_request("POST", f"{server.base_url}/chat/completions", json=body)
        self.thread = threading.Thread(target=self._send)
        self.server = server
        self.problem: Exception | None = None

    def _send(self) -> None:
        try:
            self.client.send(self.request, stream=True)
        except httpx.TransportError as problem:
            self.problem = problem

    def __enter__(self) -> None:
        self.thread.start()
        while self.server.stats().in_flight == 0:
            self.thread.join(0.001)

    def __exit__(self, *_: object) -> None:
        self.server.close()
        self.thread.join()
        self.client.close()
        assert self.problem is not None


def test_a_client_that_hangs_up_frees_its_slot_at_once() -> None:
    body = {"messages": [{"role": "user", "content": REVIEW}], "stream": True}
    with endpoint.start(concurrency=1, speed=20) as server, httpx.Client() as client:
        for _ in range(50):
            with client.stream("POST", f"{server.base_url}/chat/completions", json=body) as answer:
                assert answer.status_code == 200
                next(answer.iter_raw())
        assert client.post(f"{server.base_url}/chat/completions", json={**body, "stream": False}).status_code == 200
        stats = server.stats()
    assert (stats.refused_429, stats.max_in_flight, stats.in_flight) == (0, 1, 0)
    assert stats.disconnects > 0
    assert stats.disconnects + stats.served == 51  # on a busy machine, an answer may be over before its client leaves


def test_the_slot_is_free_before_the_client_has_the_last_byte(server: DemoServer) -> None:
    with httpx.Client() as client:
        for at in range(20):
            body = {"messages": [{"role": "user", "content": f"[#{at}]"}], "stream": bool(at % 2), "max_tokens": 3}
            client.post(f"{server.base_url}/chat/completions", json=body)
            assert server.stats().in_flight == 0
    assert [entry.mark for entry in server.stats().log] == [f"[#{at}]" for at in range(20)]


def test_it_answers_while_the_callers_loop_is_blocked(server: DemoServer) -> None:
    async def blocked() -> int:
        return ask(server).status_code

    assert asyncio.run(blocked()) == 200


def test_closing_twice_is_closing_once() -> None:
    server = endpoint.start()
    assert repr(server) == f"<DemoServer http://127.0.0.1:{server.port}/v1 running>"
    server.close()
    server.close()
    assert not server.alive
    assert repr(server).endswith("closed>")
    with pytest.raises(httpx.ConnectError):
        ask(server)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"requests_per_minute": 0},
        {"retry_after": -1},
        {"retry_after": float("nan")},
        {"speed": 0},
        {"speed": float("inf")},
        {"port": 70_000},
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        endpoint.start(**wrong)


def test_a_port_that_is_taken_is_named(server: DemoServer) -> None:
    with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{server.port}"):
        endpoint.start(port=server.port)


def test_without_tornado_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("tornado"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=r"fairq-ipy\[notebook\]"):
        endpoint.start()


def test_importing_it_does_not_load_tornado() -> None:
    code = "import fairq_ipy.demo.endpoint, sys; assert 'tornado' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_that_the_server_is_not_there_and_leaves_it_alone() -> None:
    code = textwrap.dedent("""
        import os, httpx
        from fairq_ipy.demo import endpoint
        from fairq_ipy.errors import ConfigurationError
        server = endpoint.start(speed=200)
        child = os.fork()
        if child == 0:
            assert not server.alive
            server.close()
            try:
                server.stats()
            except ConfigurationError as problem:
                assert str(os.getppid()) in str(problem)
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert httpx.get(server.base_url + "/models").status_code == 200
    """)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "server.close()"])
def test_a_process_that_ends_under_way_ends_without_noise(ending: str) -> None:
    code = textwrap.dedent(f"""
        import threading, time, httpx
        from fairq_ipy.demo import endpoint
        server = endpoint.start(speed=0.01)
        def call():
            try:
                httpx.post(server.base_url + "/completions", json={{"prompt": "x"}})
            except httpx.TransportError:
                pass
        threading.Thread(target=call, daemon=True).start()
        while not server.stats().in_flight:
            time.sleep(0.001)
        {ending}
    """)
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert [line for line in done.stderr.splitlines() if "unclosed" not in line or "asyncio" in line] == []
