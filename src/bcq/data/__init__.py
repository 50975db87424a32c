"""Logged transitions: read, checked, examined, described."""
