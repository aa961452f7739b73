"""AgentRunBatches: their items become rows, their counts a status.

::

    watch, sweep ─→ Batches (what is known of each object, few bytes an object)
         ├→ Acceptance: look up, check every item, write batch and items → PostgreSQL
         ├→ rowlock.store.batch_rounds: count what ended, start what may start
         ├→ Materializer: AgentRuns of failed items, or of all
         └→ status, Events; deletion after the TTL; rows of deleted objects are purged

No item is kept here: memory does not grow with their number.
"""
