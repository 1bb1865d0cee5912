"""The lock for asyncio: links on an event loop, the driver of operations, and the public classes."""
