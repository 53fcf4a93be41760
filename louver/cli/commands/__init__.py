"""What the command line's commands do, apart from reading arguments."""
