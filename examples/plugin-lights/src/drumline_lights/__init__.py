"""An example plug-in for Drumline: switches and dims lights, with rollback."""
