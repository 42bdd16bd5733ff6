"""Runs a participant that gives up early where another has its name: `python -m tests.support.impatient ARGUMENTS`."""

import runpy

from participant.link import assignment_stream

if __name__ == "__main__":
    assignment_stream.STARTING_RETRY_SECONDS = 3.0  # several attempts, told once
    runpy.run_module("participant.main", run_name="__main__", alter_sys=True)
