"""Prometheus metrics. Processes write them to files in the run directory; the gateway sums them.

Labels are kinds of things, never ids: their number must stay small.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

queue_length = Gauge(
    "drumline_queue_length", "Tasks in the dispatcher's queue.", multiprocess_mode="livesum"
)
queue_capacity = Gauge(
    "drumline_queue_capacity", "Capacity of the dispatcher's queue.", multiprocess_mode="livesum"
)
workers = Gauge("drumline_workers", "Workers by state.", ["state"], multiprocess_mode="livesum")
duplicates = Counter("drumline_duplicates", "Offered tasks that were already queued or assigned.")
refused = Counter("drumline_refused", "Tasks that the queue rejected: full, or paused.")
bad_frames = Counter("drumline_bad_frames", "Messages that could not be decoded.")
bundle_size = Histogram(
    "drumline_bundle_size", "Tasks in a bundle.", buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500)
)
kills_sent = Counter("drumline_kills_sent", "Kills that the dispatcher sent at a deadline.")

sweep_items = Counter("drumline_sweep_items", "Sweep items that have ended.", ["type"])

tasks = Counter("drumline_tasks", "Runs that ended.", ["env", "type", "outcome"])
execution_seconds = Counter(
    "drumline_execution_seconds", "Total run time of handlers.", ["env", "type"]
)
kills = Counter("drumline_kills", "Runs that had to be stopped.", ["reason"])
heartbeats = Counter("drumline_heartbeats", "Keepers' heartbeats written.")
fenced = Counter(
    "drumline_fenced_writes_refused", "Writes refused because the run had a newer fence."
)

scan_seconds = Histogram("drumline_scan_seconds", "Duration of scans.")
scanned = Counter("drumline_scanned_tasks", "Due tasks that scans found.")
upkeep_failures = Counter("drumline_upkeep_failures", "Failed status updates.", ["of"])
stalls = Counter("drumline_stalls", "Recycled worker pools, because no task made progress.")
firings = Counter("drumline_firings", "Firings of jobs by state.", ["state"])
misfires = Counter("drumline_misfires", "Gaps in which firings of a job were missed.")
callbacks = Counter("drumline_callbacks", "Callbacks by result.", ["result"])
deaths = Counter("drumline_dead_executions", "Runs whose worker died.", ["type"])
pruned = Counter("drumline_pruned_rows", "Rows removed by retention.")
webhooks = Counter("drumline_webhooks", "Deliveries of alarms by result.", ["result"])
tokens_refused = Counter(
    "drumline_tokens_refused", "Requests with a missing or wrong token.", ["why"]
)
commands = Counter("drumline_commands", "Executed commands.", ["command", "result"])
