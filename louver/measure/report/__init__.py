"""Tables and plots of the command line and of the README."""
