"""A long job, one page after the other: what was read before an outage is not read again."""
