"""Empty, as in Graphcore's addons."""
