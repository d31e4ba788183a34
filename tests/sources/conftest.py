"""Fixtures of the tests of sources."""

from bucket_inputs import bucket, same_as_local  # noqa: F401 - fixtures for every test here
