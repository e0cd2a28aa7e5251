"""A call made ready: checked whole and cut into templates once, then rendered for each run.

Neither this nor what it imports needs an HTTP library: whoever creates a job checks its call here.
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
from drumline.handlers.http.bounds import REQUEST_BODY_KEPT, URL_KEPT, fit, fit_headers
from drumline.handlers.http.call import BadCall, ExecType, HttpCall
from drumline.handlers.http.masking import MASK, Secrets, is_secret, mask_names, may_name_secrets
from drumline.handlers.http.result import SentRequest
from drumline.handlers.http.target import BadTarget, HttpTarget

MOST_HEADERS = 64
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
"""What an ASYNC call sends of its callback if its templates do not."""

TRACEPARENT = "traceparent"
RESERVED = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
     "trailer", "expect", "proxy-authorization", "proxy-connection", TRACEPARENT)
)  # fmt: skip
"""Headers that frame the message or say where it goes: they are ours to set."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_JSON = re.compile(r"[^/]+/(?:[^/]+\+)?json")
_XML = re.compile(r"[^/]+/(?:[^/]+\+)?(?:xml|html)")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)


class Sent(NamedTuple):
    """A request as it goes out."""

    url: str
    headers: dict[str, str]
    body: str | None


class Shown(NamedTuple):
    """The same request as it may be looked at, and what must not be."""

    request: SentRequest
    secrets: Secrets


class PreparedCall:
    """A call whose every part is known to be right, whatever the values of a run."""

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
        self._secret = frozenset(name for name in headers if is_secret(name))
        self._secrets = Secrets(v for name, v in self._fixed.items() if name in self._secret)
        self._fixed_shown = fit_headers(
            {name: self._show_header(name, v, self._secrets) for name, v in self._fixed.items()}
        )
        self._mask_url = may_name_secrets(call.url)
        self._mask_body = call.body is not None and may_name_secrets(call.body)

    def send(self, values: SlotValues, traceparent: str) -> Sent:
        """The request of one run."""
        headers = self._fixed.copy()
        for name, template in self._varying.items():
            headers[name] = template.render(values)
        headers[TRACEPARENT] = traceparent
        body = None if self._body is None else self._body.render(values)
        return Sent(self._origin + self._path.render(values), headers, body)

    def show(self, sent: Sent, values: SlotValues) -> Shown:
        """What is kept of a request: secrets masked first, then cut."""
        secrets = self._secrets_of(sent, values)
        url = secrets.mask(sent.url)
        url, url_cut = fit(mask_names(url) if self._mask_url else url, URL_KEPT)
        body, body_cut = sent.body, False
        if body is not None:
            body = secrets.mask(body)
            body, body_cut = fit(mask_names(body) if self._mask_body else body, REQUEST_BODY_KEPT)
        headers = self._fixed_shown.copy()
        if self._varying:
            for name in self._varying:
                headers[name] = self._show_header(name, sent.headers[name], secrets)
            headers = fit_headers(headers)
        headers[TRACEPARENT] = sent.headers[TRACEPARENT]
        cut = url_cut or body_cut or len(headers) < len(sent.headers)
        return Shown(SentRequest(self.method, url, headers, body, cut), secrets)

    def _secrets_of(self, sent: Sent, values: SlotValues) -> Secrets:
        secrets = self._secrets
        if not self._secret.isdisjoint(self._varying):
            secrets = Secrets(sent.headers[name] for name in self._secret)
        if self._uses_token and (token := values[CALLBACK_TOKEN]):
            secrets = secrets.and_token(str(token))
        return secrets

    def _show_header(self, name: str, value: str, secrets: Secrets) -> str:
        return MASK if name in self._secret else secrets.mask(mask_names(value))


def prepare(param: object) -> PreparedCall:
    """Check a task's param whole, and make it ready."""
    return PreparedCall(HttpCall.of(param))


def _headers(given: Mapping[str, str]) -> dict[str, Template]:
    if len(given) > MOST_HEADERS:
        raise BadCall(field="headers", reason=f"there are more than {MOST_HEADERS}")
    if sum(len(name) + len(value) for name, value in given.items()) > HEADERS_LIMIT:
        raise BadCall(field="headers", reason=f"they have more than {HEADERS_LIMIT} characters")
    named = {name.lower() for name in given}
    headers = {
        name: Template((value,))
        for name, value in DEFAULT_HEADERS.items()
        if name.lower() not in named
    }
    if len(named) < len(given):
        raise BadCall(field="headers", reason="a name occurs twice, in different cases")
    for name, value in given.items():
        field = f"headers.{name[:80]}"
        if not _TOKEN.fullmatch(name):
            raise BadCall(field=field, reason="this is not the name of a header")
        if name.lower() in RESERVED:
            raise BadCall(field=field, reason="Drumline sets this header itself")
        headers[name] = parse_template(value.strip(" \t"), TemplateContext.HEADER, field)
    return headers


def _body(text: str | None, headers: dict[str, Template]) -> Template | None:
    """The body's template, by the Content-Type, which is added if there is none."""
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
