"""Imported by programs for its effect: control_flow_ops brings its gradients itself."""
