"""Agents that the loads run: the examples, with what would measure something else taken out."""
