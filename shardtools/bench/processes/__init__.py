"""Processes of ours: how each is started, known for ours, ended with all it started, and cleaned up after."""
