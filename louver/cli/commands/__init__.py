"""The work of each command, apart from reading its arguments."""
