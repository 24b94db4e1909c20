"""Engines: where independent pieces of work run, in this process or on the machines of a cluster."""
