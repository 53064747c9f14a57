"""Functions of the Poplar plug-in: there are none of their own here; programs only import it."""
