"""The main job, shown: manifests applied, a worker killed, its run taken over, all finished.

`python -m demo` (or `make demo`) plays it on a real API server and an embedded PostgreSQL, with the
operator and two workers as local processes; `story` tells it, `stage` holds the processes it needs.
"""
