"""The process above the loop processes: it beats for them, watches them and buries them.

`supervisor` puts the duties together: `beats`, `wishes`, `upkeep`, `stalls`, `exposition`;
`crew` keeps one `child` alive for each of the `plans`.
"""
