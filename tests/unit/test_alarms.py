"""Alarms: the webhooks of each event, signatures, and delays between tries."""

import base64
import hashlib
import hmac
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline import config
from drumline.config import Settings
from drumline.domain.alarms import (
    MAX_DELAY,
    AlarmEvent,
    Webhook,
    retry_delay,
    sign_message,
    webhook_secret,
    webhooks_by_event,
)
from drumline.errors import BadConfig

HOOK = Webhook(name="ops", url="http://ops.example/alarms", secret_env="OPS")  # noqa: S106  # a name


def test_a_signature_equals_the_example_of_the_specification() -> None:
    """The example of the libraries of the Standard Webhooks specification."""
    secret = webhook_secret(HOOK, {"OPS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
    body = b'{"test": 2432232314}'
    signed = sign_message(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=1), st.text(), st.integers(0, 2**40), st.binary())
def test_the_signature_covers_id_time_and_body(
    secret: bytes, event_id: str, at: int, body: bytes
) -> None:
    signed = sign_message(secret, event_id, at, body)
    kind, _, code = signed.partition(",")
    content = event_id.encode() + b"." + str(at).encode() + b"." + body
    right = hmac.new(secret, content, hashlib.sha256).digest()
    assert (kind, base64.b64decode(code)) == ("v1", right)
    assert sign_message(secret, event_id, at + 1, body) != signed
    assert sign_message(secret, event_id, at, body + b" ") != signed
    assert sign_message(secret, event_id + "x", at, body) != signed


@given(st.integers(1, 100), st.floats(0, 1))
def test_delays_between_tries_grow_up_to_a_limit(tries: int, chance: float) -> None:
    now, later = retry_delay(tries, chance), retry_delay(tries + 1, chance)
    assert 0 < now <= later <= MAX_DELAY
    assert retry_delay(tries, 0.0) <= now <= retry_delay(tries, 1.0) == 2 * retry_delay(tries, 0.0)


@given(st.lists(st.sets(st.sampled_from(AlarmEvent), min_size=1), max_size=4))
def test_each_webhook_receives_its_events(asked: list[set[AlarmEvent]]) -> None:
    webhooks = [
        Webhook(name=str(i), url="http://x/", secret_env="X", events=tuple(events))  # noqa: S106
        for i, events in enumerate(asked)
    ]
    found = webhooks_by_event(webhooks)
    for event in AlarmEvent:
        names = tuple(str(i) for i, events in enumerate(asked) if event in events)
        assert found.get(event, ()) == names
        assert (event in found) == bool(names), "events without a webhook are left out"


@pytest.mark.parametrize("value", ["", "whsec_###"])
def test_a_missing_or_invalid_secret_is_named(value: str) -> None:
    with pytest.raises(BadConfig, match=r"'ops'.*OPS"):
        webhook_secret(HOOK, {"OPS": value})


def test_the_example_of_the_page_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "alarms.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "drumline.toml"
    file.write_text(example)
    (webhook,) = config.load({}, file).webhooks
    assert webhook.events == tuple(AlarmEvent), "all events, as the page says"


def test_invalid_webhook_settings_are_named() -> None:
    ok = '[{"name": "ops", "url": "https://x/", "secret_env": "S", "events": ["batch_end"]}]'
    settings = config.load({"DRUMLINE_WEBHOOKS": ok})
    assert settings.webhooks[0].events == (AlarmEvent.BATCH_END,)
    again = config.load(config.as_environment(settings))
    assert again.webhooks == settings.webhooks, "child processes read the same"
    for wrong, words in (
        ("{", "DRUMLINE_WEBHOOKS is not JSON"),
        (ok.replace("batch_end", "nosuch"), "nosuch"),
        (ok.replace("https", "ftp"), "url"),
        (ok.replace("https://x/", "https://me:secret@x/"), "url"),
        (ok.replace('["batch_end"]', "[]"), "events"),
        (f"[{ok[1:-1]}, {ok[1:-1]}]", "two webhooks are called 'ops'"),
    ):
        with pytest.raises(BadConfig, match=words):
            config.load({"DRUMLINE_WEBHOOKS": wrong})
    assert Settings().webhooks == ()
