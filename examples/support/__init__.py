"""A support agent that refunds damaged orders; the model is a script, so it runs anywhere."""
