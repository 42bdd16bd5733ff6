"""A participant that gives up early where its name is taken: `python -m tests.support.services.impatient ARGUMENTS`."""

import runpy

from participant.link import assignment_stream

if __name__ == "__main__":
    assignment_stream.STARTING_RETRY_SECONDS = 3.0  # several attempts, told once
    runpy.run_module("participant.main", run_name="__main__", alter_sys=True)
