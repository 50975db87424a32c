"""Trained policies as single files that other software can run."""
