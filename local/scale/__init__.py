"""How many streams a stage can hold: what 100,000 of them need, compared with AWS's quotas."""
