"""Streaming kernels on windows: for vectors N:M@L, and for groups that do not fit in a thread's registers."""
