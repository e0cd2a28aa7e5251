"""What Prometheus sees. Processes write to files in the run directory; the gateway adds them up.

Labels are kinds of things, never ids: their number must stay small.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

queue_length = Gauge(
    "drumline_queue_length", "Tasks in the dispatcher's queue.", multiprocess_mode="livesum"
)
queue_capacity = Gauge(
    "drumline_queue_capacity", "Tasks the queue can hold.", multiprocess_mode="livesum"
)
workers = Gauge("drumline_workers", "Workers by state.", ["state"], multiprocess_mode="livesum")
duplicates = Counter(
    "drumline_duplicates", "Tasks offered to the queue that were queued or assigned already."
)
refused = Counter("drumline_refused", "Tasks the queue did not take: full, or paused.")
bad_frames = Counter("drumline_bad_frames", "Messages that could not be read.")
bundle_size = Histogram(
    "drumline_bundle_size", "Tasks in a bundle.", buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500)
)
kills_sent = Counter("drumline_kills_sent", "Deadlines at which the dispatcher sent a kill.")

sweep_items = Counter("drumline_sweep_items", "Items of sweeps that are done.", ["type"])

tasks = Counter("drumline_tasks", "Runs that ended.", ["env", "type", "outcome"])
execution_seconds = Counter(
    "drumline_execution_seconds", "How long handlers ran, added up.", ["env", "type"]
)
kills = Counter("drumline_kills", "Runs that had to be stopped.", ["reason"])
heartbeats = Counter("drumline_heartbeats", "Keepers' heartbeats written.")
fenced = Counter("drumline_fenced_writes_refused", "Writes of runs that were no longer theirs.")

scan_seconds = Histogram("drumline_scan_seconds", "How long scans took.")
scanned = Counter("drumline_scanned_tasks", "Due tasks that scans found.")
upkeep_failures = Counter("drumline_upkeep_failures", "Status upkeep that failed.", ["of"])
stalls = Counter("drumline_stalls", "Times the worker pool was recycled because nothing moved.")
firings = Counter("drumline_firings", "Firings of jobs by what became of them.", ["state"])
misfires = Counter("drumline_misfires", "Gaps in which firings of a job were missed.")
callbacks = Counter("drumline_callbacks", "Callbacks by what became of them.", ["result"])
deaths = Counter("drumline_dead_executions", "Runs whose worker died.", ["type"])
pruned = Counter("drumline_pruned_rows", "Rows removed by retention.")
webhooks = Counter("drumline_webhooks", "Alarms by what became of a delivery.", ["result"])
tokens_refused = Counter("drumline_tokens_refused", "Requests without a right token.", ["why"])
commands = Counter("drumline_commands", "Commands carried out.", ["command", "result"])
