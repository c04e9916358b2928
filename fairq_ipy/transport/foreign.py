"""Transports that a user hands in."""


class ForeignTransport:
    """Stub."""


class AsyncForeignTransport:
    """Stub."""
