"""Measurement: small files against shards, and what limits the loader."""
