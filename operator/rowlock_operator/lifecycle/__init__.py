"""The operator as a process: start, loops, probes, shutdown.

`assembly` wires the parts, `loops` runs each of them for ever, `supervisor` ends the process when
one of them ends, `startup` waits for the API server and PostgreSQL, `upkeep` keeps the database's
clockwork going, `probes` and `web` say how it goes.
"""
