"""What will break before it breaks: the machine's limits, what a DataLoader would take of them, and what happens right now."""
