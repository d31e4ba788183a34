"""Counters of the machine while a trial runs: pure parsers of what the kernel writes, and a thread that samples them.

Every parser takes text and raises Unknown where the text does not tell; nothing is guessed.
"""
