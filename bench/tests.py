"""`python -m bench.tests`: what the tests cost, as a ratio that can be compared between machines.

The ratio is the CPU seconds of a test command with all its processes, divided by those of a loop of ten million small
additions in a script, which is measured before and after it. The goals are two fifths of what the tests took at
b6b5e6d3. That was 1,050 with the interpreter's tests, which have had a command of their own since.
A run after which many files have changed also fills caches: of types (34 s here where all are checked), of compiled
tests (15 s), of templates (4 s each). So measure the second of two runs.
Invariant: what the command leaves running without waiting for it does not count.
"""

import os
import shlex
import subprocess
import sys
import time

from bench.harness import goal_if, parse_options, show

# As a script has it, because the goals were set by that: in a function it takes half as long.
LOOP = """
total = 0
for number in range(10_000_000):
    total += number
"""
GOAL = 420
"""Of `make test`."""
INTERPRETER_GOAL = 105
"""Of the interpreter's own tests."""


def loop_s() -> float:
    """Return the CPU seconds of the loop."""
    code, begun_s = compile(LOOP, "loop", "exec"), time.process_time()
    exec(code, {})
    return time.process_time() - begun_s


def children_s() -> float:
    """Return the CPU seconds of the ended children and their children, user and system."""
    times = os.times()
    return times.children_user + times.children_system


def main(argv: list[str] | None = None) -> int:
    """Measure and print; return 0, 1 if the goal is missed, or the status of the command if it fails."""
    asked = parse_options(
        argv,
        __doc__,
        command=("make test", "what runs the tests"),
        goal=(float(GOAL), f"the most that the ratio may be, {INTERPRETER_GOAL} of the interpreter's own tests"),
    )
    before_s, begun_s, used_s = loop_s(), time.monotonic(), children_s()
    # What the tests print is no part of the JSON.
    done = subprocess.run(shlex.split(asked.command), stdout=sys.stderr if asked.json else None, check=False)
    cpu_s, wall_s = children_s() - used_s, time.monotonic() - begun_s
    additions_s = (before_s + loop_s()) / 2
    ratio = cpu_s / additions_s
    figures = {
        "command": asked.command, "status": done.returncode, "cpu_s": round(cpu_s, 1), "wall_s": round(wall_s, 1),
        "loop_s": round(additions_s, 3), "ratio": round(ratio),
    }  # fmt: skip
    goal = goal_if(asked.command, f"a ratio of {ratio:.0f}, at most {asked.goal:g}", ratio <= asked.goal)
    return done.returncode or show(asked, figures, [goal])


if __name__ == "__main__":
    sys.exit(main())
