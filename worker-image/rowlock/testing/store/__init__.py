"""The store in memory: a module for each module of `rowlock.store`, on plain objects.

Every method runs to its end before another one begins, so there are no locks and no races here;
what a sequence of calls leads to is the same as in PostgreSQL, and one suite tests both.
"""

from rowlock.testing.store.memory import MemoryStore

__all__ = ["MemoryStore"]
