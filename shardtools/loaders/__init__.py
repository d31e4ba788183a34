"""The training side: what a torch ``DataLoader`` needs to read a dataset."""
