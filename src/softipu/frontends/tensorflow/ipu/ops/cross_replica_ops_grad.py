"""Imported by programs for its effect: cross_replica_ops brings its gradients itself."""
