"""The table of fences."""
