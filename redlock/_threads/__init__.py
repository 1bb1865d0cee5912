"""The lock for threads: links to the masters, the driver of operations, and the public classes."""
