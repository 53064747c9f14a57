"""Imported by programs for its effect: within_replica_ops brings its gradients itself."""
