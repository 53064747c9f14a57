"""What people run and look at: gc-monitor and its kin, and the `softipu` command."""
