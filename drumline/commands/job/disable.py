"""`drumline job disable`: stop a job from firing. Its unstarted firings are removed."""

from __future__ import annotations

from typing import ClassVar

from drumline.cli import gateway, groups, output
from drumline.commands.job import switch


class JobDisable(switch.JobSwitch, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.disable"
    status: ClassVar[str] = "DISABLED"


@groups.job.command("disable", epilog="drumline job disable report")
@switch.options
def disable(job: str, version: int | None, request_id: str | None) -> None:
    """Stop a job from firing. Its running tasks continue."""
    answer = gateway.change("job.disable", {"job": job, "version": version}, request_id)
    output.print_result(answer, f"job {answer['id']} {answer['name']}: disabled")
