"""Benchmarks of a whole stack: measured side by side in one run, as ratios where possible."""
