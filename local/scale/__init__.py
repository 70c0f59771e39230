"""How many streams a stage can hold: what 100,000 of them ask of AWS, beside its quotas."""
