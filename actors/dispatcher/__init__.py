"""The dispatcher process."""

from actors.dispatcher.dispatcher import run as run
