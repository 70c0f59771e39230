"""Makes a release: the functions' zip, and a CloudFormation template with parameters in place of a stage's settings."""
