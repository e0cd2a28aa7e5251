"""An example plug-in for Drumline: switches and dims lights, and can undo it."""
