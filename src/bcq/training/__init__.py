"""The offline loop, and the policy that comes out of it."""
