"""Work on files of targets, in processes that the daemon can give up: docs/decisions/0014-errands.md."""
