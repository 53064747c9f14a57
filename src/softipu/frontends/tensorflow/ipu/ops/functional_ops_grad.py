"""Imported by programs for its effect: functional_ops brings its gradients itself."""
