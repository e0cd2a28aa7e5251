"""A worker: the keeper, and what it is made of."""

from actors.worker.keeper import run as run
