"""The batches of the paper: agents, experts, recipes."""
