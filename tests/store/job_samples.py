"""Jobs as clients send them, and the handlers that they need."""

from drumline.domain.policy import HandlerSpec
from drumline.handlers.base import handler_specs
from drumline.handlers.http.handler import HttpHandler
from tests.store.world import SPEC

(HTTP,) = handler_specs(HttpHandler(), "http")
ASYNC = HandlerSpec("target", "begins", callbacks=True, timeout=7.5)

SAMPLE = {
    "name": "sample",
    "description": "calls every 15 seconds",
    "cron_expr": "*/15 * * * * *",
    "exec_type": "SYNC",
    "http_method": "POST",
    "target_url": "http://service.example/run",
    "headers_json": '{"Content-Type": "application/json", "Authorization": "Bearer abcdefgh"}',
    "body_template": '{"run": "{{run_id}}"}',
    "timeout_seconds": 10,
    "max_concurrency": 1,
    "concurrency_policy": "QUEUE",
    "overlap_action": "SKIP",
    "failure_action": "RUN_NEW",
}
TASK = {"name": "task", "cron_expr": "0 6 * * mon-fri", "type": SPEC.type}
