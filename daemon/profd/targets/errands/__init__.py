"""What is done with files of targets, by processes that can be given up: docs/decisions/0014-errands.md."""
