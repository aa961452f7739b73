"""Run the operator: `python -m rowlock_operator`."""

from rowlock_operator.cli import main

main()
