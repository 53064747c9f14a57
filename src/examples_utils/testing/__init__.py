"""Helpers that tests of IPU programs import."""
