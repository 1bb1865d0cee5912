"""The clients: processes that use nothing but the public names of redlock, and write down what they see.

`nursery`: where they come from.  `__main__`: one process, its masters, its threads or its tasks.  `work`: what a worker
does with locks, written once for both worlds.  `worlds`: threads and asyncio.  `stage`: what the session wants.
`stores`: what the locks protect.  `handover`: leases that go from one process to another.  `votes`: what masters said.
`watch`: what the machine does to this process.
"""
