"""The learning loop, and the policy that results."""
