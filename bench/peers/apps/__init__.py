"""One module a peer: its task, its worker's settings, and how tasks are enqueued.

These modules run in the peers' virtual environment and import nothing of Drumline's. Each has
`open_queue()`, which returns a function that enqueues one task for each of the given times.
"""
