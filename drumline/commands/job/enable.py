"""`drumline job enable`: let a job fire from now on. Firings that were missed stay missed."""

from __future__ import annotations

from typing import ClassVar

from drumline.cli import gateway, groups, output
from drumline.commands.job import switch


class JobEnable(switch.JobSwitch, frozen=True, kw_only=True):
    name: ClassVar[str] = "job.enable"
    status: ClassVar[str] = "ENABLED"


@groups.job.command("enable", epilog="drumline job enable report")
@switch.options
def enable(job: str, version: int | None, request_id: str | None) -> None:
    """Let a job fire from now on."""
    answer = gateway.change("job.enable", {"job": job, "version": version}, request_id)
    next_firing = answer["next_firing"] or "after its runs"
    output.print_result(answer, f"job {answer['id']} {answer['name']}: enabled, next {next_firing}")
