"""The command line: how it reads arguments and what it shows at a terminal."""
