"""Part of tensorflow.python.ipu: optimizers."""
