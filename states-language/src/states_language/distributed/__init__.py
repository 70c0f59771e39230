"""The distributed Map: its runs, readers, batches and writers."""
