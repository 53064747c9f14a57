"""Part of tensorflow.python.ipu: ops."""
