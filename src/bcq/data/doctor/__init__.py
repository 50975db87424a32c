"""What is wrong with a batch, or worth knowing of it, in words and with row numbers."""
