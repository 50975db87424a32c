"""Many jobs: what each needs, who runs it, and the records of its results."""
