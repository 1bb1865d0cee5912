"""The algorithm: what P1 and P2 rest on (R1-R22), and no part that only one feature needs.

To read it: `quorum` (what a majority is), `validity` (how long a lease lasts), `rounds` (how votes are counted),
`ballot` (what masters answer to an acquire), `attempt` (one try: token, round, fence), `rollback`, `release`, and
`extension` with its repairs.
"""
