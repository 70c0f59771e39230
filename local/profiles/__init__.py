"""The verb `profile`: checks profiles, and tries one against its upstream."""
