"""What `rowlock doctor` checks, and what each finding means.

A check is a statement and a judgement: the statement reads numbers, the judgement is a pure
function of them. One check that cannot be read fails by itself and leaves the others alone.

Three verdicts: `ok`; `warn`, look at it today; `fail`, runs are or will be held up.
"""
