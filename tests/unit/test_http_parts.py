"""The pure functions of a call: retry policy, masking, decompression, cutting, tracing."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
import zlib
from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.domain.policy import HandlerSpec
from drumline.domain.release import FinishedRun, RetryLimits, RunEnd, decide_release
from drumline.domain.release import RunOutcome as RunOutcome
from drumline.domain.states import Cause, TaskState
from drumline.handlers.http.limits import STORED_HEADERS_LIMIT, cut_headers, cut_text
from drumline.handlers.http.response import decode_text, decompress, retry_after, stored_headers
from drumline.handlers.http.retry import DEFAULT_ON, RETRIABLE, CallOutcome, RetryPolicy, outcome_of
from drumline.handlers.http.trace import traceparent
from drumline.masking import (
    MASK,
    SecretValues,
    is_secret_name,
    mask_named_values,
    may_contain_secret_names,
)

# --- outcomes and retries -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (200, "success"), (204, "success"), (299, "success"), (101, "1xx"), (301, "3xx"),
        (304, "3xx"), (400, "4xx"), (404, "4xx"), (429, "4xx"), (499, "4xx"), (500, "5xx"),
        (503, "5xx"), (599, "5xx"), (0, "5xx"), (600, "5xx"), (999, "5xx"),
    ],
)  # fmt: skip
def test_a_status_code_decides_the_outcome(code: int, outcome: str) -> None:
    assert outcome_of(code) == outcome


@pytest.mark.parametrize(
    ("on", "outcome", "code", "wanted"),
    [
        (DEFAULT_ON, CallOutcome.TIMEOUT, None, True),
        (DEFAULT_ON, CallOutcome.CONNECTION, None, True),
        (DEFAULT_ON, CallOutcome.SERVER_ERROR, 503, True),
        (DEFAULT_ON, CallOutcome.CLIENT_ERROR, 429, True),
        (DEFAULT_ON, CallOutcome.CLIENT_ERROR, 404, False),
        (DEFAULT_ON, CallOutcome.REDIRECT, 302, False),
        (DEFAULT_ON, CallOutcome.TLS, None, False),
        (DEFAULT_ON, CallOutcome.REFUSED, None, False),
        (("4xx",), CallOutcome.CLIENT_ERROR, 404, True),
        ((404,), CallOutcome.CLIENT_ERROR, 404, True),
        (("404",), CallOutcome.CLIENT_ERROR, 403, False),
        (("5xx",), CallOutcome.TIMEOUT, None, False),
        (("5xx",), CallOutcome.TIMEOUT, 503, False),
        ((), CallOutcome.SERVER_ERROR, 500, False),
    ],
)
def test_policy_retries_the_listed_outcomes(
    on: tuple[str | int, ...], outcome: CallOutcome, code: int | None, wanted: bool
) -> None:
    assert RetryPolicy(max_attempts=3, on=on).retries(outcome, code) is wanted


@given(st.sampled_from(CallOutcome), st.none() | st.integers(0, 999))
def test_success_and_refusal_are_never_retried(outcome: CallOutcome, code: int | None) -> None:
    everything = RetryPolicy(max_attempts=9, on=(*RETRIABLE, *range(100, 200), *range(300, 600)))
    assert everything.invalid_entry() is None
    assert everything.retries(outcome, code) is (
        outcome not in (CallOutcome.SUCCESS, CallOutcome.REFUSED)
    )


@pytest.mark.parametrize("entry", ["2xx", 200, "200", 600, "nope", "", 99, "4x", "٤٠٤"])
def test_policy_with_an_unknown_outcome_is_refused(entry: str | int) -> None:
    assert repr(entry) in (RetryPolicy(on=(entry,)).invalid_entry() or "")


def test_policy_is_converted_to_the_retry_rule_of_the_run() -> None:
    retry = RetryPolicy(max_attempts=4, delay=2, factor=3, max_delay=60, jitter=0).to_retry()
    assert (retry.retries, retry.backoff(1, 0.5), retry.backoff(2, 0.5)) == (3, 2, 6)
    assert retry.backoff(9, 0.5) == 60
    assert set(retry.causes) == {Cause.ERROR, Cause.TIMEOUT, Cause.CALLBACK_TIMEOUT}
    assert set(RetryPolicy(on=("5xx",)).to_retry().causes) == {Cause.ERROR}
    assert RetryPolicy().to_retry().retries == 0


@pytest.mark.parametrize(
    ("outcome", "code", "failures", "again"),
    [
        (CallOutcome.SERVER_ERROR, 500, 0, True),
        (CallOutcome.SERVER_ERROR, 500, 1, True),
        (CallOutcome.SERVER_ERROR, 500, 2, False),  # three attempts were made
        (CallOutcome.CLIENT_ERROR, 404, 0, False),
        (CallOutcome.TIMEOUT, None, 0, True),
        (CallOutcome.REFUSED, None, 0, False),
    ],
)
def test_policy_decides_whether_a_run_is_retried(
    outcome: CallOutcome, code: int | None, failures: int, again: bool
) -> None:
    policy = RetryPolicy(max_attempts=3)
    cause = Cause.TIMEOUT if outcome is CallOutcome.TIMEOUT else Cause.ERROR
    run = FinishedRun(
        id=1, fence=1, status=TaskState.RUNNING, batch_id=None, attempt=1, retry_time=0,
        failures=failures, deaths=0, due_at=0, retry=policy.to_retry(), is_job_run=True,
        outcome=RunOutcome(RunEnd.ERROR, final=not policy.retries(outcome, code), cause=cause),
        handler=HandlerSpec("http", "http"), worker="worker-1",
    )  # fmt: skip
    verdict = decide_release(run, RetryLimits(2, 3), cancelled=False, now=0, chance=0.5)
    assert verdict.runs_again is again


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, 0), ("", 0), ("soon", 0), ("-5", 0), ("0", 0), ("120", 120),
        ("99999999999999", 3600), (format_datetime(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)), 60),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30), ("Wed, 01 Jan 2025 00:00:00 GMT", 0), ("1.5", 0),
    ],
)  # fmt: skip
def test_retry_after_is_parsed(value: str | None, seconds: float) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert retry_after({} if value is None else {"Retry-After": value}, now) == seconds


# --- masking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["Authorization", "PROXY-AUTHORIZATION", "Cookie", "Set-Cookie", "X-Api-Key", "apikey",
     "api_key", "token", "access_token", "X-CSRF-Token", "secret", "client_secret", "password",
     "PASSWD", "passphrase", "pwd", "aws_access_key_id", "private-key", "X-Hub-Signature",
     "credentials", "sessionid", "jwt", "X-Auth", "sasl.jaas.config", "basic.auth.user.info",
     "ssl.keystore.key"],
)  # fmt: skip
def test_secret_names_are_recognised(name: str) -> None:
    assert is_secret_name(name)
    assert may_contain_secret_names(f"x {name} y")  # the quick check has no false negatives


@pytest.mark.parametrize("name", ["Content-Type", "X-Request-Id", "key", "author", "pass", "name"])
def test_other_names_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"token": "abc", "a": 1}', '{"token": "***", "a": 1}'),
        ('{"token":"a\\"b","x":"y"}', '{"token":"***","x":"y"}'),
        ('{"Access_Token" : 12345}', '{"Access_Token" : "***"}'),
        ('{"tokens": ["a", {"b": "]"}], "x": 1}', '{"tokens": "***", "x": 1}'),
        ('{"secret": {"a": {"b": "}"}}, "x": {"y": 1}}', '{"secret": "***", "x": {"y": 1}}'),
        ('[{"password": null}, {"password": "x"}]', '[{"password": "***"}, {"password": "***"}]'),
        ('{"password": "cut in the mid', '{"password": "***"'),
        ('{"password": "cut\\', '{"password": "***"'),
        ('{"password": {"a": [1, "x', '{"password": "***"'),
        ('{"password":', '{"password":"***"'),
        ("a=1&api_key=abc&b=2", "a=1&api_key=***&b=2"),
        ("token=abc", "token=***"),
        ("https://h/p?x=1;token=abc#f", "https://h/p?x=1;token=***#f"),
        ("<a><password>hunter</password></a>", "<a><password>***</password></a>"),
        ('<ns:Token kind="x">hunter</ns:Token>', '<ns:Token kind="x">***</ns:Token>'),
        ("nothing of the kind: token", "nothing of the kind: token"),
        ('{"message": "the token is gone"}', '{"message": "the token is gone"}'),
    ],
)
def test_value_of_a_secret_name_is_masked(text: str, masked: str) -> None:
    assert mask_named_values(text) == masked


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "b", "token"]), inner)
        ),
        max_leaves=12,
    ),
    st.integers(0, 200),
)
def test_masking_json_masks_exactly_the_secret_keys(document: object, cut: int) -> None:
    def expected(value: object) -> object:
        if isinstance(value, dict):
            return {k: MASK if k == "token" else expected(v) for k, v in value.items()}
        return [expected(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(document)
    assert json.loads(mask_named_values(text)) == expected(document)
    mask_named_values(text[:cut])  # a cut document raises no error


@given(st.text("ab%", max_size=60), st.integers(0, 80))
def test_secret_cut_at_the_end_is_masked_entirely(text: str, cut: int) -> None:
    hidden = "S3CRET-" * 3
    left = SecretValues([hidden]).mask((text + hidden + text)[:cut], cut=True)
    assert "S" not in left
    assert left.replace(MASK, "") in text + text


def test_secret_is_masked_in_every_encoding() -> None:
    secrets = SecretValues(['Bearer ab"c/d+ef', "sid=hunter2; short=x"])
    for form in ('ab"c/d+ef', 'ab\\"c/d+ef', "ab%22c%2Fd%2Bef", "hunter2", "sid=hunter2; short=x"):
        assert secrets.mask(f"<{form}>") == f"<{MASK}>"
    assert secrets.mask("x Bearer short") == "x Bearer short"


@pytest.mark.parametrize(
    "text", ["token" * 4_000, '"token' * 3_000, "<token" * 3_000, "token=" * 3_000, '"a":' * 5_000]
)
def test_masking_a_hostile_response_takes_linear_time(text: str) -> None:
    started = time.process_time()
    mask_named_values(text)
    assert time.process_time() - started < 0.5  # a backtracking pattern takes minutes


# --- decompression and cutting --------------------------------------------------------------------


@given(st.binary(max_size=3_000), st.sampled_from(["gzip", "deflate", "raw", ""]), st.integers(1))
def test_body_is_decompressed_up_to_the_limit(data: bytes, how: str, limit: int) -> None:
    limit = limit % 4_000 + 1
    raw = zlib.compressobj(wbits=-15)
    compressed = {
        "gzip": gzip.compress(data),
        "deflate": zlib.compress(data),
        "raw": raw.compress(data) + raw.flush(),
        "": data,
    }[how]
    decompressed, whole = decompress(compressed, "deflate" if how == "raw" else how, limit)
    assert decompressed == data[:limit]
    assert whole or len(data) >= limit


def test_gzip_bomb_is_decompressed_up_to_the_stored_size_only() -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)
    tracemalloc.start()
    try:
        assert decompress(bomb, "gzip", 16_384) == (b"\0" * 16_384, False)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    many = gzip.compress(b"") * 1_000 + gzip.compress(b"end")
    assert decompress(many, "gzip", 16_384) == (b"end", True)


def test_body_with_invalid_compression_is_kept_up_to_the_error() -> None:
    compressed = gzip.compress(b"a" * 100 + bytes(range(256)) * 4)
    part, whole = decompress(compressed[:-20], "GZIP ", 10_000)
    assert part.startswith(b"aaa") and not whole
    assert decompress(b"not gzip at all", "gzip", 100) == (b"", False)
    assert decompress(b"brotli", "br", 3) == (b"bro", False)
    assert decompress(b"", "gzip", 100) == (b"", True)


@pytest.mark.parametrize(
    ("raw", "content_type", "whole", "text"),
    [
        ("ä€".encode(), "", True, "ä€"),
        ("ä€".encode()[:-1], "", False, "ä"),
        ("ä€".encode()[:-1], "", True, "ä\ufffd"),
        (b"a\xffb", "text/plain", True, "a\ufffdb"),
        ("ä".encode("latin-1"), "text/plain; charset=ISO-8859-1", True, "ä"),
        ("語".encode("shift_jis"), 'text/html; Charset="Shift_JIS"', True, "語"),
        (b"abc", "text/plain; charset=punycode", True, "abc"),
        (b"abc", "text/plain; charset=utf-8-nonsense", True, "abc"),
        (b"abc", "text/plain; charset=rot13", True, "abc"),
        (b"\x00\x01", "image/png", True, "\x00\x01"),
    ],
)
def test_body_is_decoded_with_its_declared_charset(
    raw: bytes, content_type: str, whole: bool, text: str
) -> None:
    assert decode_text(raw, content_type, whole) == text


@given(st.text(), st.integers(0, 300))
def test_a_text_is_cut_by_its_bytes_in_json(text: str, limit: int) -> None:
    kept, cut = cut_text(text, limit)
    assert text.startswith(kept)
    assert len(msgspec.json.encode(kept)) - 2 <= limit
    assert cut is (kept != text)
    if cut:  # by no more than necessary, within one character of six bytes
        assert len(msgspec.json.encode(kept)) - 2 >= limit // 6 - 6


@given(st.dictionaries(st.text(max_size=60), st.text(max_size=600), max_size=30))
def test_headers_are_cut_to_the_limit(headers: dict[str, str]) -> None:
    kept = cut_headers(headers)
    assert len(msgspec.json.encode(kept)) <= STORED_HEADERS_LIMIT + 8 * len(kept)
    assert list(kept) == list(headers)[: len(kept)]


def test_only_known_headers_are_stored() -> None:
    given_ = {"content-type": "a", "Set-Cookie": "b", "RETRY-AFTER": "5", "X-Other": "c"}
    assert stored_headers(given_) == {"Content-Type": "a", "Retry-After": "5"}


# --- tracing --------------------------------------------------------------------------------------


def test_request_has_the_trace_of_the_run_and_its_own_span() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    first, second = traceparent(trace).split("-"), traceparent(trace).split("-")
    assert first[:2] == second[:2] == ["00", trace]
    assert first[2] != second[2] and len(first[2]) == 16 and first[3] == "01"
    for none in (None, "", "0" * 32, trace.upper(), trace[:-1], trace + "\n", "g" * 32):
        version, fresh, span, flags = traceparent(none).split("-")
        assert (version, len(fresh), len(span), flags) == ("00", 32, 16, "01")
        assert fresh != none and int(fresh, 16) and int(span, 16)
