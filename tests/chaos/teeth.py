"""The table of all deliberate defects and of the proof that catches each: `python -m tests.chaos.teeth` prints it.

It decides only how the table looks; what is in it comes from the two lists of defects. Invariant: a defect that both
proofs have is one row, for it has one name.
"""

from tests.chaos import chaos_defects, model_defects

# What any proof of a handover must catch; the table names them first.
FOREMOST = (
    "claims after connecting",
    "no fence on the cursor",
    "a lane waits after a drop",
    "no watch for the connected mark",
    "the tail is emitted as an event",
    "errors of single statements of a batch are ignored",
    "the cursor is saved before its events",
    "renewal without overlap",
    "the standby ignores the stop",
)


def table() -> str:
    """The table, in Markdown."""
    in_model = {defect.what: _model(defect) for defect in model_defects.DEFECTS}
    in_chaos = {defect.name: ", ".join(sorted(defect.shows_as)) for defect in chaos_defects.DEFECTS}
    names = dict.fromkeys([*FOREMOST, *in_model, *in_chaos])
    rows = [f"| {name} | {in_model.get(name, '')} | {in_chaos.get(name, '')} |" for name in names]
    return "\n".join(["| defect | the model names | chaos counts |", "|---|---|---|", *rows])


def _model(defect: model_defects.Defect) -> str:
    faults = ", ".join(defect.budget) or "no faults"
    return f"{defect.caught_by} ({defect.policy}, {faults})"


if __name__ == "__main__":
    print(table())
