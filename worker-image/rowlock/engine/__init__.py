"""A loop process: it claims runs, hosts them, and writes what becomes of them.

`process` is the program, `host` puts its parts together;
`claimer` (at its `pace`) brings runs, `runner` holds them, `hosted` is one of them;
blocking calls are made by `executors`, each an `executor_process` that runs `executor`;
its agent sees a `journal`, whose rows go through a `lane` to the one `writer`;
`waits` tells what its branches wait for, `answers` what people answered it,
`leaving` how it parks meanwhile.
`board`, `pulse`, `trust` and `messages` are what it shares with its supervisor.
"""
