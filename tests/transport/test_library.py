from __future__ import annotations

import subprocess
import sys


def test_httpx_is_whole_before_the_first_client_is_there():
    # openai 3 looks for it in sys.modules at each call: importing it later, beside running calls, breaks them.
    code = """
import sys
from fairq_ipy.transport.library import choose
assert "httpx" not in sys.modules
print(choose("httpx2").name, hasattr(sys.modules["httpx"], "Timeout"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["httpx2", "True"]
