"""The operator as a process: start, loops, probes, shutdown.

`assembly` wires the parts by groups (`showing`, `taking_in`, `pooling`, `resync`) out of `means`.
`loops` runs each of them for ever, `supervisor` ends the process when one of them ends, `startup`
waits for the API server and PostgreSQL, `channels` opens the ways to them, `upkeep` keeps the
database's clockwork going, `pulse`, `probes` and `web` say how it goes.
`lease`, `lease_access`, `election` and `elector` decide which of several operators does all that.
"""
