"""Connections to the masters, who waits and who reads, and what is done in the background, in both worlds."""
