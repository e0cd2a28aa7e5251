"""Chaos runs: a node under a mixed workload and injected faults, and a checker of what happened."""
