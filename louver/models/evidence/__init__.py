"""What is known about the tensors of a checkpoint, one file for each kind of evidence."""
