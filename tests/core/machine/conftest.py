"""Puts the oracle within reach of the tests beside it: the importlib mode of pytest gives their folder no name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
