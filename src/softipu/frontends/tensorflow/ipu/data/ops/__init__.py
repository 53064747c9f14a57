"""Part of tensorflow.python.ipu: data ops."""
