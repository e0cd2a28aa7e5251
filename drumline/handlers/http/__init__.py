"""The `http` handler: concurrent HTTP calls to the addresses that the rules allow."""
