"""With `CI=strict` a test that is skipped for want of a program, a package or a device fails.

A plugin of pytest, which `conftest.py` loads. Whatever is not a reason of `MAY_SKIP` counts as wanting
something, so that a new reason is looked at before it passes.
"""

import os
import re

import pytest

STRICT = "strict"  # value of the environment variable CI
# Reasons that hold wherever everything is installed: of the case, of the operating system, of a busy machine.
MAY_SKIP = re.compile(
    r"does not divide"
    r"|vision towers have their own test"
    r"|not a checkout of the repository"  # an unpacked sdist
    r"|needs a device that is full|files there have no holes"
    r"|as POSIX systems do|of POSIX systems|needs pipes that break|needs a pseudo-terminal|as Linux does"
    r"|other work on this computer"
    r"|names no folder of published launch files"  # of others, which a checkout does not hold
)


def reason_of(report):
    """Return why a test or a module was skipped; an empty text where it was not."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def fail_if_wanting(report):
    """Let a report fail whose test wants something, in continuous integration that is strict."""
    reason = reason_of(report)
    if reason and os.environ.get("CI") == STRICT and not MAY_SKIP.search(reason):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, which CI={STRICT} does not let pass: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return fail_if_wanting((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return fail_if_wanting((yield))
