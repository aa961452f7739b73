"""Loads that measure Rowlock; figures go to `bench/results/`, never into a timed test."""
