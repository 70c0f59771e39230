"""Everything that runs the project on one's own machine; nothing in here ships to Lambda."""
