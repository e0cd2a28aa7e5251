"""Other task queues, measured in the same run. They run in a virtual environment of their own."""
