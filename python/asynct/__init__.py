"""AsyncT: PyTorch reference, training and tools."""
