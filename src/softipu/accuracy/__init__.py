"""Published figures of real IPUs beside what the machine model predicts for the same workloads.

`rows` is the data, `build` makes graphs of it, `figures` compares, `document` writes
docs/accuracy.md. Models have no weights: they live on torch's device `meta`.
"""
