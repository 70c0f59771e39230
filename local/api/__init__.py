"""The actions of the Step Functions API, a module for each part of it."""
