"""Facts about a kernel in tile IR: integers, accesses, effects. Nothing here changes the kernel."""
