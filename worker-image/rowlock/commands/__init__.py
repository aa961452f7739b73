"""Commands for people: start runs, look at them, steer them."""
