"""What a policy is worth, from logs alone."""
