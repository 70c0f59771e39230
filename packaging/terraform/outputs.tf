output "endpoint" {
  value       = aws_cloudformation_stack.streamkeeper.outputs["ServiceEndpoint"]
  description = "The address of the API"
}

output "version" {
  value       = aws_cloudformation_stack.streamkeeper.outputs["Version"]
  description = "The version that the stack has"
}

output "profiles_bucket" {
  value       = local.bucket
  description = "The bucket with the profiles, under streamkeeper/<stage>/profiles/"
}
