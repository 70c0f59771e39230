"""All code that ships to Lambda: the functions and their parts."""
