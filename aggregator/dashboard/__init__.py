"""The read-only page: runs, live rounds, participants. It shows what operators see, and can change nothing."""
