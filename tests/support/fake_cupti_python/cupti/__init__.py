"""A stand-in for cupti-python with as much of its API as profclient uses, on tests/support/fake_cupti.c."""
