"""The verb `profile`: writes and checks profiles, and tries one with its upstream."""
