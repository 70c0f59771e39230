"""JSONPath: paths, Payload Templates, intrinsic functions, Choice Rules."""
