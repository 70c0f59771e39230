variable "release" {
  type        = string
  description = "The folder with the files of a release: streamkeeper-VERSION.zip and its template"
  validation {
    condition     = length(fileset(var.release, "streamkeeper-*.template.json")) == 1
    error_message = "The folder must have the files of one release, which `make release` makes."
  }
}

variable "stage" {
  type        = string
  default     = "prod"
  description = "Names everything: the stack is streamkeeper-<stage>"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,14}$", var.stage))
    error_message = "stage must be at most 15 lowercase letters, digits and hyphens, a letter first."
  }
}

variable "profiles" {
  type        = map(string)
  default     = {}
  description = "The text of each profile by its name"
  validation {
    condition     = alltrue([for name in keys(var.profiles) : can(regex("^[A-Za-z0-9._-]{1,64}$", name))])
    error_message = "The name of a profile must be letters, digits, dots, hyphens and underscores, 64 at most."
  }
}

variable "settings" {
  # With map(any), Terraform would refuse a number beside true or false.
  type        = map(string)
  default     = {}
  description = "Parameters of the template by name, in place of their defaults: { KeepDays = 7, LogApiCalls = true }"
  validation {
    condition = length(setintersection(keys(var.settings), [
      "Stage", "CodeBucket", "CodeKey", "ProfilesBucket", "ProfilesFolder",
    ])) == 0
    error_message = "The module itself sets Stage, CodeBucket, CodeKey, ProfilesBucket and ProfilesFolder."
  }
}

variable "bucket" {
  type        = string
  default     = ""
  description = "The bucket for zip, template and profiles, with versioning turned on; \"\" creates one"
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of the stack, and of what it makes"
}
