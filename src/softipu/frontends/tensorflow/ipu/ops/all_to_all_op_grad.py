"""Imported by programs for its effect: all_to_all_op brings its gradients itself."""
