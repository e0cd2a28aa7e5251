"""`drumline doctor`: check a set-up for mistakes."""

from __future__ import annotations

from drumline.cli import groups, output

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
FAILED_EXIT_CODE = 1


@groups.root.command("doctor", epilog="drumline doctor\ndrumline doctor --json")
def doctor() -> int:
    """Check the set-up and advise how to correct it. Exit 1 if a check fails."""
    import click

    from drumline import config
    from drumline.cli.status_line import StatusLine
    from drumline.errors import BadConfig
    from drumline.node import doctor as examination

    findings = []
    try:
        settings = config.load()
    except BadConfig as error:
        findings.append(examination.Finding("config", examination.FAIL, str(error)))
    else:
        with StatusLine(log_steps=False) as line:
            for finding in examination.examine(settings):
                line.show(f"Checking {finding.check}")
                findings.append(finding)
    lines = []
    for finding in findings:
        level = click.style(finding.level.ljust(4), fg=COLOURS[finding.level])
        advice = f": {finding.advice}" if finding.advice else ""
        lines.append(f"{level}  {finding.check.ljust(11)}  {finding.text}{advice}")
    output.print_result(findings, "\n".join(lines))
    return FAILED_EXIT_CODE if any(finding.level == examination.FAIL for finding in findings) else 0
