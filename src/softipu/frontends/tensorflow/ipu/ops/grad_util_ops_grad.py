"""Imported by programs for its effect: grad_util_ops brings its gradients itself."""
