"""The `http` handler: calls services over HTTP, many at a time, inside its address rules."""
