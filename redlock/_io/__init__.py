"""Connections to the masters, waiting and reading, and what is done in the background, in both worlds."""
