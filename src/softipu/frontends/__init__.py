"""Front ends that are found through the import finder (PyTorch has its own package, poptorch)."""
