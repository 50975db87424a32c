"""Run directories: what a training leaves on disk, and goes on from."""
