"""Which states of a graph lie on a cycle: what may happen again and again, for ever.

It decides nothing else and knows no state of the model, only numbers (Tarjan's strongly connected components, without
recursion). Invariant: a state is on a cycle exactly where some path of at least one step leads from it back to it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


def on_cycles(count: int, sources: array[int], targets: array[int]) -> bytearray:
    """1 for each of the states 0 to `count` - 1 that is on a cycle; `sources` ascend, step n goes to `targets[n]`."""
    first = [bisect_left(sources, state) for state in range(count + 1)]
    on_cycle = bytearray(count)
    order = array("l", bytes(8 * count))  # when a state was first met, from 1 on; 0 before
    lowest = array("l", bytes(8 * count))  # the earliest that is known to be in its component
    held = bytearray(count)
    component: list[int] = []
    met = 0
    for root in range(count):
        way = [] if order[root] else [(root, first[root])]
        while way:
            state, step = way.pop()
            if not order[state]:
                met += 1
                order[state] = lowest[state] = met
                held[state] = True
                component.append(state)
            while step < first[state + 1]:
                target = targets[step]
                if not order[target]:
                    way += [(state, step), (target, first[target])]
                    break
                step += 1
                if held[target]:
                    lowest[state] = min(lowest[state], lowest[target])
                    on_cycle[state] |= target == state
            else:
                if lowest[state] == order[state]:
                    _close(state, component, held, on_cycle)
    return on_cycle


def _close(root: int, component: list[int], held: bytearray, on_cycle: bytearray) -> None:
    """Takes the component of `root` off the stack; more than one state is a cycle through each of them."""
    is_cycle = component[-1] != root
    while True:
        state = component.pop()
        held[state] = False
        on_cycle[state] |= is_cycle
        if state == root:
            return
