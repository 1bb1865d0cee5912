"""What the locks for threads and for asyncio have in common, down to the sockets.  Nothing here waits."""
