"""The algorithm: what P1 and P2 rest on (R1-R22), and no part that only one feature needs.

To read it: `quorum` (what a majority is), `validity` (how long a lease lasts), `rounds` (counting votes), `ballot` (the
answers to an acquire), `attempt` (one try: token, round, fence), `rollback`, `release`, `extension` with its repairs.
"""
