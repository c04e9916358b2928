"""ACTS: the keeper thread that owns the core, how callers wait for it, and who asks."""
