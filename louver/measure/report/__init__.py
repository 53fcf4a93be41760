"""Tables and plots: what the command line shows and what the README's picture is drawn with."""
