"""The benchmark runner, under the name that programs import."""
