"""The gateway process: the control socket and the web server."""

from actors.gateway.gateway import run as run
