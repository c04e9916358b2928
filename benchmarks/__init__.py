"""Measures fairq_ipy beside its peers, in one run: ``python -m benchmarks --help``. README.md says how to read it."""
