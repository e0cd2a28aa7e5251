"""Installs what the peers need: their virtual environment, Redis and PostgreSQL."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers.peer import PEERS, PeerSystem
from bench.peers.services import ServiceError, postgres_program

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-bench"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PACKAGES = {"redis-server": "redis-server", "postgres": "postgresql"}
"""The Debian package of each server."""
APT_GET = "/usr/bin/apt-get"

Warn = Callable[[str], None]


def available_peers(warn: Warn) -> tuple[PeerSystem, ...]:
    """The peers that can be measured here; a warning for each that cannot."""
    if not install_venv(warn):
        return ()
    servers = {peer.server for peer in PEERS}
    present = {server for server in servers if _has_server(server, warn)}
    for peer in PEERS:
        if peer.server not in present:
            warn(f"{peer.name} is left out: {peer.server} is not installed")
    return tuple(peer for peer in PEERS if peer.server in present)


def install_venv(warn: Warn) -> bool:
    """Bring .venv-bench up to date with the pins; False, and a warning, if that fails."""
    stamp = VENV / ".installed"
    fingerprint = hashlib.sha256(REQUIREMENTS.read_bytes() + str(VENV).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return True
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        pip = [str(VENV / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--only-binary=:all:", "-r", REQUIREMENTS], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        warn(f"all peers are left out: their virtual environment could not be made: {error}")
        return False
    stamp.write_text(fingerprint)
    return True


def _has_server(server: str, warn: Warn) -> bool:
    if _is_installed(server):
        return True
    if os.geteuid() == 0 and Path(APT_GET).exists():
        warn(f"installing {PACKAGES[server]} with apt-get")
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = [APT_GET, "-qq", "--yes", "--no-remove", "--no-install-recommends", "install"]
        subprocess.run([*install, PACKAGES[server]], env=environment, stdout=subprocess.DEVNULL)
    return _is_installed(server)


def _is_installed(server: str) -> bool:
    if server != "postgres":
        return shutil.which(server) is not None
    try:
        return bool(postgres_program("initdb") and postgres_program("postgres"))
    except ServiceError:
        return False
