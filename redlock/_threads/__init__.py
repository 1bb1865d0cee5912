"""The lock for threads: connections to the masters, the driver of operations, and the public classes."""
