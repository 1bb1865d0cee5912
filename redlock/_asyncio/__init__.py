"""The lock for asyncio: connections on an event loop, the driver of operations, and the public classes."""
