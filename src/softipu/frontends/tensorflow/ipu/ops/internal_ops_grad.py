"""Imported by programs for its effect: internal_ops brings its gradients itself."""
