"""SHOWS: the IPython extension, its magics, and what they display."""
