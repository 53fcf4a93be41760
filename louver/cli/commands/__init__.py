"""The work of each command, without reading its arguments."""
