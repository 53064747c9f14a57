"""Measurements that `make bench` prints; never part of the tests, since machines are noisy."""
