"""Part of tensorflow.python.ipu: distributed."""
