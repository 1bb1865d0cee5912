"""Adapters to other libraries; those that import one need its extra."""
