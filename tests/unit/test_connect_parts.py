"""The parts of the operations on connectors: states, offsets, secrets, clusters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumline.handlers.connect  # noqa: F401  # registers the handlers
from drumline import config
from drumline.command_layer.param_schema import require
from drumline.config.connect_clusters import ClusterSelector, ConnectCluster, select_cluster
from drumline.errors import BadConfig, WrongUse
from drumline.handlers.connect.client import ConnectorReport, ConnectorStatus, Offset, TaskStatus
from drumline.handlers.connect.offsets import (
    by_partition,
    mark,
    marked_by,
    moved_offset,
    offset_changes,
)
from drumline.handlers.connect.secrets import is_plain_secret, mask_config_secrets
from drumline.handlers.connect.states import (
    ConnectorFailed,
    StableState,
    WantedState,
    is_in_state,
    wanted_state,
)
from drumline.handlers.registry import registry

# --- states --------------------------------------------------------------------------------------


def status(state: str, *tasks: str) -> ConnectorReport:
    made = tuple(TaskStatus(task, i, "boom\n at x") for i, task in enumerate(tasks))
    return ConnectorReport(ConnectorStatus(state), made)


@pytest.mark.parametrize(
    ("seen", "target", "reached"),
    [
        (status("RUNNING", "RUNNING", "RUNNING"), WantedState.RUNNING, True),
        (status("RUNNING", "RUNNING", "UNASSIGNED"), WantedState.RUNNING, False),
        (status("RUNNING"), WantedState.RUNNING, False),  # no task has started yet
        (status("STOPPED"), WantedState.STOPPED, True),
        (status("STOPPED", "RUNNING"), WantedState.STOPPED, False),
        (status("PAUSED", "PAUSED"), WantedState.PAUSED, True),
        (status("PAUSED", "RUNNING"), WantedState.PAUSED, False),
        (None, WantedState.STOPPED, False),
    ],
)
def test_is_in_state(seen: ConnectorReport | None, target: WantedState, reached: bool) -> None:
    assert is_in_state(seen, target) is reached


def test_wanted_state_of_a_failed_connector_is_running() -> None:
    assert wanted_state("FAILED") is WantedState.RUNNING
    assert wanted_state("UNASSIGNED") is WantedState.RUNNING
    assert wanted_state(None) is WantedState.RUNNING
    assert wanted_state("PAUSED") is WantedState.PAUSED


def test_state_counts_after_the_settle_time() -> None:
    settling = StableState(WantedState.RUNNING, 1.0)
    running, restarting = status("RUNNING", "RUNNING"), status("RUNNING", "UNASSIGNED")
    assert not settling.update(running, 0.0)  # may be from before the change
    assert not settling.update(restarting, 0.5)
    assert not settling.update(running, 0.9)
    assert not settling.update(running, 1.8)
    assert settling.update(running, 2.0)


def test_failure_counts_after_the_settle_time() -> None:
    settling = StableState(WantedState.RUNNING, 1.0)
    failed = status("RUNNING", "RUNNING", "FAILED")
    assert not settling.update(failed, 0.0)
    assert not settling.update(status("RUNNING", "RUNNING", "RESTARTING"), 0.9)
    assert not settling.update(failed, 1.0)
    with pytest.raises(ConnectorFailed, match=r"its task 1 failed: boom$"):
        settling.update(failed, 2.0)


# --- offsets -------------------------------------------------------------------------------------

partitions = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"), min_size=1)
offset_sets = st.lists(
    st.builds(Offset, partitions, st.dictionaries(st.just("pos"), st.integers(0, 3), min_size=1)),
    max_size=5,
)


@given(offset_sets, offset_sets)
def test_offset_changes_turn_one_set_into_the_other(
    now: list[Offset], wanted: list[Offset]
) -> None:
    has = by_partition(now)
    for each in offset_changes(now, wanted):
        key = msgspec.json.encode(each.partition, order="deterministic")
        if each.offset is None:
            del has[key]  # raises if the partition had no offset
        else:
            assert has.get(key) != each, "written without need"
            has[key] = each
    assert has == by_partition(wanted)


def test_mark_is_found_and_removed() -> None:
    offsets = [Offset({"server": "s"}, {"pos": 1}), mark(7)]
    assert marked_by(offsets) == 7
    assert marked_by(offsets[:1]) is None
    assert mark(None).offset is None


def test_new_position_drops_fields_of_the_old_one() -> None:
    old = {"file": "f", "pos": 4, "gtids": "g:1-9", "row": 3, "event": 2, "snapshot": "INITIAL"}
    found = moved_offset([Offset({"server": "s"}, old), mark(1)], None, {"gtids": "g:1-5"})
    assert found == Offset({"server": "s"}, {"file": "f", "pos": 4, "gtids": "g:1-5"})
    by_file = moved_offset([Offset({"server": "s"}, old)], None, {"file": "h", "pos": 1})
    assert by_file.offset == {"file": "h", "pos": 1}, "the old GTIDs would win over the file"


def test_position_of_a_connector_without_offsets() -> None:
    assert moved_offset([], "shop", {"gtids": "g:1"}) == Offset(
        {"server": "shop"}, {"gtids": "g:1"}
    )
    with pytest.raises(WrongUse, match="topic"):
        moved_offset([], None, {"gtids": "g:1"})


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("database.password", "hunter2", True),
        ("database.password", "${file:/etc/secrets:pw}", False),
        ("database.password", "${file:/etc/secrets:pw} and more", True),
        ("ssl.key.password", "x", True),
        ("ssl.keystore.location", "/etc/keystore", False),
        ("ssl.keystore.key", "-----BEGIN", True),
        ("aws.secret.access.key", "x", True),
        ("AWS_SECRET", "x", True),
        ("producer.override.sasl.jaas.config", "…LoginModule required password=x", True),
        ("sasl.oauthbearer.token.endpoint.url", "https://idp.example/token", False),
        ("basic.auth.user.info", "me:pw", True),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter", False),
        ("message.key.columns", "a:b", False),
        ("table.include.list", "shop.passengers", False),
        ("database.passthrough", "x", False),
        ("connection.url", "jdbc:mysql://db/shop", False),
        ("connection.url", "jdbc:mysql://db/shop?user=me&password=pw", True),
        ("mongodb.connection.string", "mongodb://me:pw@db/shop", True),
        ("database.hostname", None, False),
    ],
)
def test_which_settings_are_secret(key: str, value: str | None, secret: bool) -> None:
    assert is_plain_secret(key, value) is secret


def test_every_secret_in_a_text_is_masked() -> None:
    settings = {"a.password": "long-secret", "b.password": "long-secret-er", "host": "db"}
    text = "no long-secret-er and long-secret at mongodb://u:pw@db nor ?password=x; db stays"
    assert mask_config_secrets(text, settings) == (
        "no *** and *** at mongodb://u:***@db nor ?password=***; db stays"
    )


@pytest.mark.parametrize(
    ("type_", "param", "words"),
    [
        ("cdc/cdc_job_stop", None, None),
        ("cdc/cdc_job_stop", {"az": "b"}, None),
        ("cdc/cdc_job_stop", {"ax": "b"}, "param.ax: is not known"),
        ("cdc/cdc_change_config", {"az": "b"}, "param: needs one of cpu, memory"),
        ("cdc/cdc_change_config", {"replicas": 0}, "param.replicas: must be >= 1"),
        (
            "cdc/cdc_change_config", {"set": {"database.password": "hunter2"}},
            "param.set.database.password: does not match: a secret is given as a reference",
        ),
        ("cdc/cdc_change_config", {"set": {"database.password": "${file:/a:b}"}}, None),
        ("cdc/cdc_reset_gtid", {"gtids": "0-1-5,1-1-7"}, None),
        ("cdc/cdc_reset_gtid", {"gtids": "5"}, "param.gtids: does not match"),
        ("cdc/cdc_reset_gtid", {"file": "x"}, "param: needs one of gtids, file and pos"),
        ("cdc/cdc_switch_az", {}, "param.to_az: is missing"),
        ("panama/panama_migrate_to_cdc", {"topic_prefix": "x"}, "param.source: is missing"),
    ],
)  # fmt: skip
def test_parameters_are_checked_at_submission(type_: str, param: Any, words: str | None) -> None:
    schema = registry[type_].spec.schema
    if words is None:
        require(schema, param)
        return
    with pytest.raises(WrongUse) as caught:
        require(schema, param)
    assert str(caught.value).startswith(words)
    assert "hunter2" not in str(caught.value)


# --- clusters ------------------------------------------------------------------------------------


def cluster(name: str, **more: Any) -> ConnectCluster:
    return ConnectCluster(name=name, url="http://c.example:8083", **more)


def test_select_cluster_finds_one_cluster_or_lists_the_candidates() -> None:
    a, b = cluster("a", env="prod", az="1"), cluster("b", env="prod", az="2")
    anywhere = cluster("c", env="test")
    known = (a, b, anywhere)
    assert select_cluster(known, ClusterSelector(env="prod", az="2")) is b
    assert select_cluster(known, ClusterSelector(env="test", az="9")) is anywhere
    assert select_cluster(known, ClusterSelector(name="a")) is a
    with pytest.raises(WrongUse, match=r"several Connect clusters fit env prod: a .*, b "):
        select_cluster(known, ClusterSelector(env="prod"))
    with pytest.raises(WrongUse, match="no Connect cluster fits env dev; there are: a "):
        select_cluster(known, ClusterSelector(env="dev"))
    with pytest.raises(WrongUse, match="no Kafka Connect cluster is configured"):
        select_cluster((), ClusterSelector())


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([{"name": "a"}], "url"),
        ([{"name": "a", "url": "http://me:pw@c.example"}], "url"),
        ([{"name": "a", "url": "http://c"}, {"name": "a", "url": "http://d"}], "two Connect"),
        ([{"name": "a", "url": "http://c", "keys": {"disk": "x"}}], "'disk'"),
        ([{"name": "a", "url": "http://c", "token_env": "T", "username": "u"}], "both"),
        ([{"name": "a", "url": "http://c", "passwort": "x"}], "passwort"),
    ],
)
def test_invalid_cluster_in_the_settings_is_named(table: Any, words: str) -> None:
    environment = {"DRUMLINE_CONNECT": msgspec.json.encode(table).decode()}
    with pytest.raises(BadConfig, match=words):
        config.load(environment)


def test_clusters_reach_child_processes() -> None:
    environment = {"DRUMLINE_CONNECT": '[{"name": "a", "url": "http://c", "az": "1"}]'}
    settings = config.load(environment)
    assert config.load(config.as_environment(settings)).connect == settings.connect
    with pytest.raises(BadConfig, match="not JSON"):
        config.load({"DRUMLINE_CONNECT": "[{"})
