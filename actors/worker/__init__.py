"""The worker process: the keeper and its parts."""
