"""An exported policy as a small HTTP service, and its log of decisions."""
