"""The gateway process: the control socket and the web server."""
