"""API tokens and their roles."""

import pytest
from sqlalchemy import select

from drumline import commands
from drumline.command_layer.base import QueryCommand
from drumline.domain.roles import Role
from drumline.store.admin import tokens
from drumline.store.database import Database
from drumline.store.tables import request
from drumline.store.tables import token as token_table
from drumline.telemetry import metrics
from drumline.web.routes import TABLE, Endpoint
from tests.web_site import Site, require_problem


def filled(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{", "").replace("}", "")


def test_a_missing_or_wrong_token_is_401(site: Site) -> None:
    def refused(why: str) -> float:
        return float(metrics.tokens_refused.labels(why)._value.get())

    before = refused("NoToken"), refused("WrongToken")
    for endpoint in TABLE:
        if endpoint.role is not None:
            reply = site(endpoint.method, filled(endpoint), by=None)
            require_problem(reply, 401, "needs an API token")
            assert reply.headers["www-authenticate"].startswith("Bearer")
    require_problem(site("GET", "/jobs", by="wrong"), 401, "not known")
    basic = site("GET", "/jobs", by=None, Authorization=f"Basic {site.tokens['admin']}")
    require_problem(basic, 401, "bearer token")
    assert refused("NoToken") > before[0] and refused("WrongToken") == before[1] + 1


def test_every_endpoint_requires_its_role(site: Site) -> None:
    for endpoint in TABLE:
        if endpoint.role is None:
            continue
        assert issubclass(commands.by_name(endpoint.command), QueryCommand) == (
            endpoint.method == "GET"
        )
        if endpoint.method != "GET":
            assert endpoint.role is not Role.READ, "a change needs more than the role read"
        for role in Role:
            reply = site(endpoint.method, filled(endpoint), by=role)
            if role.covers(endpoint.role):
                assert reply.status not in (401, 403)
            else:
                require_problem(reply, 403, f"the role {endpoint.role}; the-{role} has the role")


def test_a_token_is_created_shown_once_and_revoked(
    site: Site, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"name": "ci", "role": "operate"}
    made = site("POST", "/tokens", about, Idempotency_Key="t1")
    secret = made.document.pop("token")
    assert made.status == 201 and len(secret) >= 43
    again = site("POST", "/tokens", about, Idempotency_Key="t1").document
    assert again == about, "the token is shown once"
    kept = database.read(
        lambda tx: [*tx.execute(select(request)), *tx.execute(select(token_table))]
    )
    assert secret not in repr(kept), "the token is not stored"
    require_problem(site("POST", "/tokens", about), 409, "already a token called 'ci'", "name")
    require_problem(
        site("POST", "/tokens", about | {"name": "a\n"}), 422, "letters, digits", "name"
    )
    assert site("GET", "/tasks", by=secret).status == 200
    (listed, *_) = site("GET", "/tokens").document["tokens"]
    assert (listed["name"], listed["role"], listed["revoked_at"]) == ("ci", "operate", None)
    assert listed["last_used_at"] is not None
    assert site("DELETE", "/tokens/ci").document == {"name": "ci", "revoked": True}
    monkeypatch.setattr("drumline.web.api_tokens.CACHE_SECONDS", -1.0)  # nothing is cached
    require_problem(site("GET", "/tasks", by=secret), 401, "revoked")
    require_problem(site("DELETE", "/tokens/ci"), 404, "no token ci")
    assert site("POST", "/tokens", about).status == 201, "the name is free again"


def test_the_token_of_a_node_is_replaced_with_its_file(database: Database) -> None:
    def ensure(secret: str) -> None:
        database.write(lambda tx: tokens.ensure(tx, "up@node", tokens.hash_of(secret)))

    def role(secret: str) -> str | None:
        row = database.read(lambda tx: tokens.find(tx, tokens.hash_of(secret)))
        return None if row is None else str(row.role)

    ensure("first")
    ensure("first")
    assert role("first") == "admin"
    ensure("second")
    assert (role("first"), role("second")) == (None, "admin")
    database.write(lambda tx: tokens.revoke(tx, "up@node"))
    ensure("second")
    assert role("second") is None, "a revoked token stays revoked"
