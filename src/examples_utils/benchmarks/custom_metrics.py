"""Metrics of users' own, under the name that their files import."""

from softipu.bench.runner.custom import register_custom_metric

__all__ = ["register_custom_metric"]
