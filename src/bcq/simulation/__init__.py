"""Gymnasium's environments: episodes, evaluations, true values."""
