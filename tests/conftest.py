"""What holds for the whole suite: generated tests have no time limit of their own and print how to replay a failure."""

from hypothesis import settings

settings.register_profile("streamkeeper", deadline=None, print_blob=True)
settings.load_profile("streamkeeper")
