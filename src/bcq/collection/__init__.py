"""The paper's batches: agents, experts, recipes."""
