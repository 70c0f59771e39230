"""The verb `archive`: keeps events in Parquet files, in S3 or in a folder (docs/archive.md)."""
