"""The Kafka Connect clusters of the settings, and the selection of one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from drumline.errors import BadConfig, WrongUse

Label = Annotated[str, Meta(max_length=64)]

KEYS: Mapping[str, str] = {
    "replicas": "tasks.max",
    "max_package_size": "producer.override.max.request.size",
    "cpu": "resources.cpu",
    "memory": "resources.memory",
}
"""The connector settings that the fields of a change stand for. Connect itself uses the first two;
the others are for the system that deploys the cluster's workers."""


class ConnectCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One Connect cluster, or a worker group with its own address."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    # The URL must not contain credentials: errors and logs show it.
    url: Annotated[str, Meta(pattern=r"^https?://[^@\s?#]+$")]
    env: Label = ""
    region: Label = ""
    az: Label = ""
    system: Label = ""
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
        """The connector setting that a field such as `replicas` stands for."""
        return self.keys.get(field) or KEYS[field]


class ClusterSelector(msgspec.Struct, frozen=True):
    """The labels that a cluster must match. Empty labels match everything."""

    env: str = ""
    region: str = ""
    az: str = ""
    system: str = ""
    name: str = ""

    def matches(self, cluster: ConnectCluster) -> bool:
        """Whether a cluster matches. A label that the cluster omits matches every value."""
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


def select_cluster(clusters: Iterable[ConnectCluster], sought: ClusterSelector) -> ConnectCluster:
    """The one cluster that fits, or an error that says what there is."""
    known = list(clusters)
    fitting = [cluster for cluster in known if sought.matches(cluster)]
    if len(fitting) == 1:
        return fitting[0]
    if not known:
        raise WrongUse(reason="no Kafka Connect cluster is configured: [[connect]]")
    shown = ", ".join(f"{cluster.name} ({cluster.place})" for cluster in fitting or known)
    if fitting:
        raise WrongUse(reason=f"several Connect clusters fit {sought}: {shown}; say which")
    raise WrongUse(reason=f"no Connect cluster fits {sought}; there are: {shown}")
