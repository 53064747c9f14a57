"""IPUPipelineEstimator is gone with tf.estimator; using it says what to use instead."""

from __future__ import annotations

from ._removed_estimators import refusing

__getattr__ = refusing(__name__, ("IPUPipelineEstimator", "IPUPipelineEstimatorSpec"))
