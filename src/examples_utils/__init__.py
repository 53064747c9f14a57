"""What programs for IPUs import as `examples_utils`; all of it lives in softipu."""

from softipu.bench.runner.custom import register_custom_metric
from softipu.bench.runner.extensions import load_lib

from .parsing import parse_yaml_config

__version__ = "0.1.0"
__all__ = ["load_lib", "parse_yaml_config", "register_custom_metric"]
