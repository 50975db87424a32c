"""Run directories: what a training run writes, and what it resumes from."""
