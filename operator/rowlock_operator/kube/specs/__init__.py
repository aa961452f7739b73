"""Kubernetes objects as the operator wants them; pure functions from models to dictionaries."""
