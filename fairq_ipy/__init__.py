"""One fair queue for every model call made from a notebook."""
