"""`rowlock dev`: an agent on a laptop, with a database and a worker of its own for one run."""
