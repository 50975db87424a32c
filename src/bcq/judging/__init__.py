"""How a policy compares with its batch, from logs alone."""
