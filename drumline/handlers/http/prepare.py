"""Prepared calls: validated and parsed into templates once, then rendered for each run.

The gateway validates the calls of jobs with this module, so it imports no HTTP library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from drumline.domain.jobs.template import (
    CALLBACK_TOKEN,
    CALLBACK_URL,
    SlotValues,
    Template,
    TemplateContext,
    looks_like_json,
    parse_template,
    parse_url,
)
from drumline.handlers.http.call import BadCall, ExecType, HttpCall
from drumline.handlers.http.limits import (
    STORED_REQUEST_BODY_LIMIT,
    STORED_URL_LIMIT,
    cut_headers,
    cut_text,
)
from drumline.handlers.http.result import SentRequest
from drumline.handlers.http.target import BadTarget, HttpTarget
from drumline.masking import (
    MASK,
    SecretValues,
    is_secret_name,
    mask_named_values,
    may_contain_secret_names,
)

MAX_HEADERS = 64
HEADERS_LIMIT = 16 * 1024
DEFAULT_HEADERS: Mapping[str, str] = {
    "User-Agent": "drumline",
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
}
CALLBACK_HEADERS: Mapping[str, str] = {
    CALLBACK_URL: "Drumline-Callback-Url",
    CALLBACK_TOKEN: "Drumline-Callback-Token",
}
"""Headers with which an ASYNC call sends its callback's values if its templates do not."""

TRACEPARENT = "traceparent"
RESERVED = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
     "trailer", "expect", "proxy-authorization", "proxy-connection", TRACEPARENT)
)  # fmt: skip
"""Headers that frame or route the message; only Drumline sets them."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_JSON = re.compile(r"[^/]+/(?:[^/]+\+)?json")
_XML = re.compile(r"[^/]+/(?:[^/]+\+)?(?:xml|html)")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)


class RenderedRequest(NamedTuple):
    """A rendered request."""

    url: str
    headers: dict[str, str]
    body: str | None


class MaskedRequest(NamedTuple):
    """The masked request that is stored, and the secrets that were masked."""

    request: SentRequest
    secrets: SecretValues


class PreparedCall:
    """A call that is valid for any values of a run."""

    def __init__(self, call: HttpCall) -> None:
        self.call = call
        self.method = call.method or ("GET" if call.body is None else "POST")
        origin, self._path = parse_url(call.url, "url")
        try:
            self.target = HttpTarget.parse(origin)
        except BadTarget as error:
            raise BadCall(field="url", reason=str(error)) from None
        self._origin = self.target.origin
        headers = _headers(call.headers)
        self._body = _body(call.body, headers)
        names = self._path.names.union(*(template.names for template in headers.values()))
        names |= self._body.names if self._body else frozenset()
        if call.exec_type is ExecType.ASYNC:
            for name, header in CALLBACK_HEADERS.items():
                if name not in names:
                    headers[header] = parse_template(
                        "{{" + name + "}}", TemplateContext.HEADER, header
                    )
        self._uses_token = call.exec_type is ExecType.ASYNC or CALLBACK_TOKEN in names
        self._fixed = {name: t.render({}) for name, t in headers.items() if not t.slots}
        self._varying = {name: t for name, t in headers.items() if t.slots}
        self._secret = frozenset(name for name in headers if is_secret_name(name))
        self._secrets = SecretValues(v for name, v in self._fixed.items() if name in self._secret)
        self._fixed_shown = cut_headers(
            {name: self._show_header(name, v, self._secrets) for name, v in self._fixed.items()}
        )
        self._mask_url = may_contain_secret_names(call.url)
        self._mask_body = call.body is not None and may_contain_secret_names(call.body)

    def render(self, values: SlotValues, traceparent: str) -> RenderedRequest:
        """Render the request of one run."""
        headers = self._fixed.copy()
        for name, template in self._varying.items():
            headers[name] = template.render(values)
        headers[TRACEPARENT] = traceparent
        body = None if self._body is None else self._body.render(values)
        return RenderedRequest(self._origin + self._path.render(values), headers, body)

    def masked(self, sent: RenderedRequest, values: SlotValues) -> MaskedRequest:
        """The request to store: masked, then cut."""
        secrets = self._secrets_of(sent, values)
        url = secrets.mask(sent.url)
        url, url_cut = cut_text(mask_named_values(url) if self._mask_url else url, STORED_URL_LIMIT)
        body, body_cut = sent.body, False
        if body is not None:
            body = secrets.mask(body)
            body, body_cut = cut_text(
                mask_named_values(body) if self._mask_body else body, STORED_REQUEST_BODY_LIMIT
            )
        headers = self._fixed_shown.copy()
        if self._varying:
            for name in self._varying:
                headers[name] = self._show_header(name, sent.headers[name], secrets)
            headers = cut_headers(headers)
        headers[TRACEPARENT] = sent.headers[TRACEPARENT]
        cut = url_cut or body_cut or len(headers) < len(sent.headers)
        return MaskedRequest(SentRequest(self.method, url, headers, body, cut), secrets)

    def _secrets_of(self, sent: RenderedRequest, values: SlotValues) -> SecretValues:
        secrets = self._secrets
        if not self._secret.isdisjoint(self._varying):
            secrets = SecretValues(sent.headers[name] for name in self._secret)
        if self._uses_token and (token := values[CALLBACK_TOKEN]):
            secrets = secrets.with_token(str(token))
        return secrets

    def _show_header(self, name: str, value: str, secrets: SecretValues) -> str:
        return MASK if name in self._secret else secrets.mask(mask_named_values(value))


def prepare(param: object) -> PreparedCall:
    """Validate a task's param and prepare its call."""
    return PreparedCall(HttpCall.of(param))


def _headers(given: Mapping[str, str]) -> dict[str, Template]:
    if len(given) > MAX_HEADERS:
        raise BadCall(field="headers", reason=f"more than {MAX_HEADERS} headers")
    if sum(len(name) + len(value) for name, value in given.items()) > HEADERS_LIMIT:
        raise BadCall(
            field="headers", reason=f"more than {HEADERS_LIMIT} characters in all headers"
        )
    named = {name.lower() for name in given}
    headers = {
        name: Template((value,))
        for name, value in DEFAULT_HEADERS.items()
        if name.lower() not in named
    }
    if len(named) < len(given):
        raise BadCall(field="headers", reason="the same name occurs twice in different cases")
    for name, value in given.items():
        field = f"headers.{name[:80]}"
        if not _TOKEN.fullmatch(name):
            raise BadCall(field=field, reason="not a valid header name")
        if name.lower() in RESERVED:
            raise BadCall(field=field, reason="Drumline sets this header itself")
        headers[name] = parse_template(value.strip(" \t"), TemplateContext.HEADER, field)
    return headers


def _body(text: str | None, headers: dict[str, Template]) -> Template | None:
    """The body's template for the Content-Type, which is added if it is missing."""
    if text is None:
        return None
    said = next((name for name in headers if name.lower() == "content-type"), None)
    if said is None:
        is_json = looks_like_json(text)
        headers["Content-Type"] = Template(
            ("application/json" if is_json else "text/plain; charset=utf-8",)
        )
        return parse_template(
            text, TemplateContext.JSON if is_json else TemplateContext.TEXT, "body"
        )
    content_type = "".join(headers[said].parts)
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise BadCall(field=f"headers.{said}", reason="bodies are sent as UTF-8")
    return parse_template(text, _place(content_type), "body")


def _place(content_type: str) -> TemplateContext:
    kind = content_type.partition(";")[0].strip().lower()
    if _JSON.fullmatch(kind):
        return TemplateContext.JSON
    if _XML.fullmatch(kind):
        return TemplateContext.XML
    return (
        TemplateContext.FORM
        if kind == "application/x-www-form-urlencoded"
        else TemplateContext.TEXT
    )
