"""How the operator speaks to the Kubernetes API server, and how it builds what it writes there.

`credentials` finds the server and the proof of identity, `client` makes bounded requests,
`limiter` keeps their rate, `resources` knows their paths, `errors` names what can go wrong,
`conditions` and `specs` build objects and touch nothing.
"""
