"""THINKS: decides who is next. Pure: no clock, no threads, no I/O, no randomness, no third-party import."""
