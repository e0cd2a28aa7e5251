"""Arguments in the audit trail: bounded, valid JSON, without secrets."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.command_layer import audit_trail

SECRET = "correct-horse-battery"  # noqa: S105  # must not appear
SECRET_NAMES = st.sampled_from(["token", "password", "Authorization", "api_key", "client_secret"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=40,
)


@given(st.dictionaries(st.text(max_size=20), JSON, max_size=20))
def test_arguments_are_json_within_the_limit(arguments: dict[str, Any]) -> None:
    text = audit_trail.format_arguments(arguments)
    assert len(text.encode()) <= audit_trail.ARGUMENTS_LIMIT
    assert isinstance(json.loads(text), dict)


@st.composite
def hiding_places(draw: st.DrawFn) -> dict[str, Any]:
    """A secret under its name, nested in values and in JSON texts."""
    place: Any = {draw(SECRET_NAMES): SECRET}
    for wrap in draw(st.lists(st.sampled_from(["list", "dict", "text"]), max_size=4)):
        if wrap == "list":
            place = [place]
        elif wrap == "dict":
            place = {"param": place}
        elif isinstance(place, dict):
            place = {"headers_json": json.dumps(place)}
    return {"param": place, "more": draw(JSON)}


@given(hiding_places())
def test_secrets_are_masked(arguments: dict[str, Any]) -> None:
    assert SECRET not in audit_trail.format_arguments(arguments)


def test_truncation_leaves_no_part_of_a_secret() -> None:
    for padding in range(audit_trail.TEXT_LIMIT - 60, audit_trail.READ_LIMIT + 60, 7):
        text = json.dumps({"x": "y" * padding, "password": SECRET})
        assert SECRET[:4] not in audit_trail.format_arguments({"body_template": text})


def test_omitted_items_are_counted() -> None:
    shown = json.loads(
        audit_trail.format_arguments({"targets": [{"target_id": str(n)} for n in range(5000)]})
    )
    assert shown["targets"][0] == {"target_id": "0"}
    assert (
        shown["targets"][-1] == "… 4995 more" and len(shown["targets"]) == audit_trail.MAX_ITEMS + 1
    )


@pytest.mark.parametrize(
    ("command", "found", "subject"),
    [
        ("job.update", [{"id": 7, "name": "report"}, {"job": "report"}], "job 7"),
        ("job.trigger", [{"job_id": 7, "task_id": 9}], "job 7"),
        ("job.update", [{"job": "report"}], "job report"),
        ("batch.submit", [{"batch_id": 3, "tasks": 2}], "batch 3"),
        ("batch.submit", [{"batch_name": "june", "type": "x"}], "batch june"),
        ("task.schedule_many", [{"tasks": 3}, {"type": "mail.send"}], "task mail.send"),
        ("worker.kill", [{"worker": "worker-1", "pid": 3}], "worker worker-1"),
        ("queue.pause", [{"paused": ["*"]}, {}], "queue"),
        ("sweep.start", [{"sweep_id": 5}], "sweep 5"),
        ("token.create", [{"name": "ci", "role": "read"}], "token ci"),
        ("job.create", [{"name": "n" * 900}], "job " + "n" * 251),
    ],
)
def test_the_subject_of_a_command(command: str, found: list[dict[str, Any]], subject: str) -> None:
    assert audit_trail.name_subject(command, *found) == subject
