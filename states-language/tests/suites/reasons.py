"""The reasons why cases of other projects' suites differ here, by suite and pattern of the cases' names.

The first pattern that matches gives the reason. "2.0.6" is the version of JSONata that AWS has. For each case whose
reason names it, its answer was compared (npm's package, 2026-11-28).
"""

LATER = "2.0.6 answers as ours, the suite is later"
NO_RESOURCE = "AWS refuses a Resource that is none of its own"
NO_FILTER = "the specification has no such filter, and what AWS does is not known"

REASONS: dict[str, dict[str, str]] = {
    "jsonata": {
        r"function-eval/.*": "AWS has no $eval",
        r"(coalescing|default)-operator/.*": "2.0.6 has neither ?? nor ?:",
        r"function-pad/case01[12]|function-contains/case007|joins/library-joins\[12\]": (
            "2.0.6 fails too, with an error of JavaScript's own"
        ),
        r"function-tomillis/(case013|parseDateTime\[46\])": LATER,
        r"range-operator/case02[14]": "AWS accepts [1..873782] and not one more (measured by others)",
        r"tail-recursion/case001": "AWS stops at a depth of 100 (measured by others)",
    },
    "asl-validator": {
        r"invalid-jsona?t?a?-surround-.*": "AWS takes a text that is not {% ... %} as a text (recorded)",
        r"invalid-math-add": "AWS's specification lets a text be an argument; it fails when it runs",
        r"valid-assign.asl": "a variable's name has no hyphen (Developer Guide)",
        r"valid-map-noconfig.asl": "an ItemReader needs Mode DISTRIBUTED here (docs/design.md)",
        r"valid-map-with-item-batcher-jsonata": "in a JSONata machine no state is JSONPath (recorded)",
        r"valid-path-array-context": "a script, (@.length-1), is no filter",
        r"valid-task-intrisic-function": "a function of CloudFormation is resolved in a template, not in a definition",
        r"valid-task-(credentials|parameters|timeout-jsonata)": NO_RESOURCE,
    },
    "aws-local": {
        r".* Choice: .*expression operators.*": "AWS compares what is of another type as false (recorded by value)",
        r".*States.ArrayPartition: (In|Out)put processing.*": "asked from within, with an array that no text can hold",
        r".*should (return a|always return the same) random number.*|.*UUIDv4": "another generator",
        r".*not an integer": "a fraction is rounded, as the Developer Guide says",
        r".*placeholder argument is an.*": "any value is written, as Java does; not recorded",
        r".*States.Hash.*not a string": "any value is hashed; not recorded",
        r".*index is out of bounds": "no element, so it fails; not recorded",
    },
    "statelint": {
        r"succeed-with-comment-in-catcher.json": "lambda:invoke needs a FunctionName (recorded)",
        r".*": NO_RESOURCE,
    },
    "jayway": {
        r"@": "AWS's paths begin with $",
        r"\$X": "here $X is a variable",
        r".*foo == x.*": "AWS's examples compare with a word without quotes",
        r".*@prop.*": "AWS's specification: a name with @ stands in brackets",
        r".*IN .*|.*min\(\).*|.*=~.*": NO_FILTER,
    },
    "moto": {
        r".*::test_state_machine_calling_sqs_with_task_success": "its output is not JSON; AWS answers InvalidOutput",
        r".*lambda.*": "functions of moto run in Docker",
    },
}
