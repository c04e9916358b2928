"""PLAYS: the built-in endpoint and the experiments on it."""
