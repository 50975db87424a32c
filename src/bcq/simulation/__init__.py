"""Gymnasium environments: episodes, evaluations, true values."""
