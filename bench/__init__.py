"""Figures of a whole stack, measured side by side in one run, as ratios where it can be."""
