"""The machine model: what a real IPU would do with a graph. Pure functions of (graph, settings)."""
