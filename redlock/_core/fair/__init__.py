"""Waiters are served in the order in which they came (R42)."""
