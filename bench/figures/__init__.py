"""One module a figure: each says what is measured, on what, and against what."""
