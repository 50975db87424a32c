"""The doctor: checks that give advice on a batch, with row numbers."""
