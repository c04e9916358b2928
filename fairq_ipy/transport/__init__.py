"""CARRIES: HTTP through the queue, and the metering of what passes."""
