"""Reading an upstream: opening it, its redirects, its body, in a thread of its own."""
