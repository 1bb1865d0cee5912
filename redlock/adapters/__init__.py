"""Adapters to other libraries; each needs its extra."""
