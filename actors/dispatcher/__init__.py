"""The dispatcher process."""
