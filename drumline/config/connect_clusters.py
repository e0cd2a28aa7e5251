"""Kafka Connect clusters as the configuration names them, and which of them is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from drumline.errors import BadConfig, WrongUse

Word = Annotated[str, Meta(max_length=64)]

KEYS: Mapping[str, str] = {
    "replicas": "tasks.max",
    "max_package_size": "producer.override.max.request.size",
    "cpu": "resources.cpu",
    "memory": "resources.memory",
}
"""The connector settings behind the fields of a change. Connect acts on the first two by itself;
what a connector may use of a machine is read by whatever places the cluster's workers."""


class ConnectCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One Connect cluster, or one worker group of it that has its own address."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    # No credentials in an address: it is shown in errors and logs.
    url: Annotated[str, Meta(pattern=r"^https?://[^@\s?#]+$")]
    env: Word = ""
    region: Word = ""
    az: Word = ""
    system: Word = ""
    username: str = ""
    password_env: str = ""
    token_env: str = ""
    ca_file: str = ""
    connections: Annotated[int, Meta(ge=1, le=1000)] = 32
    request_timeout: Annotated[float, Meta(gt=0)] = 15.0
    poll: Annotated[float, Meta(gt=0)] = 0.2
    settle: Annotated[float, Meta(ge=0)] = 1.0
    keys: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def place(self) -> str:
        parts = (self.env, self.region, self.az, self.system)
        return "/".join(part or "*" for part in parts)

    def key(self, field: str) -> str:
        """The connector setting behind a field such as `replicas`."""
        return self.keys.get(field) or KEYS[field]


class Sought(msgspec.Struct, frozen=True):
    """What is known of the cluster that is looked for. What is empty is not asked for."""

    env: str = ""
    region: str = ""
    az: str = ""
    system: str = ""
    name: str = ""

    def fits(self, cluster: ConnectCluster) -> bool:
        """A cluster that leaves a part out serves all values of it."""
        pairs = (
            (self.env, cluster.env),
            (self.region, cluster.region),
            (self.az, cluster.az),
            (self.system, cluster.system),
        )
        return self.name in ("", cluster.name) and all(
            not wanted or not has or wanted == has for wanted, has in pairs
        )

    def __str__(self) -> str:
        parts = {field: getattr(self, field) for field in self.__struct_fields__}
        return ", ".join(f"{field} {value}" for field, value in parts.items() if value) or "any"


def check(clusters: Sequence[ConnectCluster]) -> None:
    """Refuse a configuration in which a cluster could not be told from another."""
    names = [cluster.name for cluster in clusters]
    for name in names:
        if names.count(name) > 1:
            raise BadConfig(reason=f"two Connect clusters are called {name!r}")
    for cluster in clusters:
        if unknown := sorted(set(cluster.keys) - set(KEYS)):
            raise BadConfig(
                reason=f"Connect cluster {cluster.name!r}: keys has {unknown[0]!r}, "
                f"known are {', '.join(KEYS)}"
            )
        if cluster.token_env and cluster.username:
            raise BadConfig(
                reason=f"Connect cluster {cluster.name!r} has both token_env and username"
            )


def find(clusters: Iterable[ConnectCluster], sought: Sought) -> ConnectCluster:
    """The one cluster that fits, or an error that says what there is."""
    known = list(clusters)
    fitting = [cluster for cluster in known if sought.fits(cluster)]
    if len(fitting) == 1:
        return fitting[0]
    if not known:
        raise WrongUse(reason="no Kafka Connect cluster is configured: [[connect]]")
    shown = ", ".join(f"{cluster.name} ({cluster.place})" for cluster in fitting or known)
    if fitting:
        raise WrongUse(reason=f"several Connect clusters fit {sought}: {shown}; say which")
    raise WrongUse(reason=f"no Connect cluster fits {sought}; there are: {shown}")
