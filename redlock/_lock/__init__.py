"""What users see: options, holds, and the public classes for threads and for asyncio."""
