"""Serve a GGUF with llama.cpp's own HTTP server: ``serve_model.py GGUF PORT``. Prints READY, ends on SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading

# Two OpenMP threads beside a busy core would spin; this keeps the speed.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import xllamacpp


def main(model: str, port: int) -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {"smollm2"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_parallel = 2
    parameters.n_ctx = 4096
    parameters.n_gpu_layers = 0
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.use_jinja = True
    parameters.verbosity = 0

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = xllamacpp.Server(parameters)
    print("READY", server.listening_address, flush=True)
    stop.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
