"""Many jobs: what each needs, who runs it, what it left."""
