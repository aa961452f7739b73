"""OpenTelemetry traces of runs, made from what the database recorded.

A run's trace is built when the run has ended, from its history: so it costs the workers nothing,
and the time of a worker that was killed is in it like any other.
"""
