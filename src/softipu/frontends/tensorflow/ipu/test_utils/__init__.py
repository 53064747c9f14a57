"""Part of tensorflow.python.ipu: test_utils."""
