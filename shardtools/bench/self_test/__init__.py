"""Whether attribution finds a fault that was planted, and blames nothing where none was."""
