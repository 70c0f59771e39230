"""The table of all deliberate defects and of the proof that catches each: `python -m tests.chaos.teeth` prints it.

It decides only how the table looks; what is in it comes from the two lists of defects. Invariant: a defect that both
proofs have is one row, for it has one name.
"""

from collections.abc import Mapping

from handlers.connection.manager import Manager
from tests.chaos import chaos_defects, model_defects
from tests.handlers import test_refusals
from tests.handlers.api import test_status, test_status_words
from tests.handlers.connection import test_waiting
from tests.handlers.deliver import test_batch, test_sinks, test_webhook
from tests.handlers.framing import test_events
from tests.handlers.segments import test_log
from tests.handlers.store import test_event_items, test_unordered

# What any proof of a handover must catch; the table names them first.
FOREMOST = (
    "claims after connecting",
    "no fence on the cursor",
    "a lane waits after a drop",
    "no watch for the connected mark",
    "the tail is emitted as an event",
    "errors of single statements of a batch are ignored",
    "the cursor is saved before its events",
    "the cursor passes a loss that is not recorded",
    "renewal without overlap",
    "the standby ignores the stop",
)

# The unit test that catches a defect too: of the manager (tests/handlers/connection), of the store (tests/handlers),
# of the
# machine (tests/statemachines), of the rests (tests/handlers/test_rests.py). `unit_defects.py` puts those of the store
# and of the machine in place.
OF_THE_MANAGER = {
    "claims after connecting": "test_it_claims_before_it_connects_and_marks_after",
    "no watch for the connected mark": "test_closed_while_the_successor_connects_watches_for_its_mark",
    "the tail is emitted as an event": "test_an_unterminated_tail_is_noted_not_stored",
    "the cursor is saved before its events": "test_the_saved_cursor_never_passes_an_unstored_event",
    "the cursor passes a loss that is not recorded": "test_a_loss_is_recorded_before_the_cursor_passes_it",
    "renewal without overlap": "test_a_hot_standby_goes_when_another_execution_has_taken_over",
    "taken over is judged by the claim": "test_closed_while_the_successor_connects_watches_for_its_mark",
    "a lane waits for a successor that is gone": "test_a_successor_that_is_closed_again_is_not_waited_for",
    "the holder ignores the stop": "test_a_requested_stop_drains_and_returns",
    "released is marked before the close": "test_the_deadline_is_left_before",
    "opens without waiting for the release": "test_a_forbidding_upstream_is_opened_when_the_older_is_released",
    "the claim is ignored where two are forbidden": "test_a_claim_alone_moves_only_where_two_are_forbidden",
    "a death is taken for that of whoever is connected": "test_a_turn_is_taken_from_the_dead_alone",
    "an older connection leaves without looking again": "test_one_whose_successor_is_closed_again_stays",
    "never lets go": "test_an_overlap_is_bounded_by_the_settings",
    "hot connections stay in phase": "test_of_two_hot_connections_that_began_together_the_older_leaves_half_way",
    "the deadline is forgotten": "test_the_deadline_is_left_before",
    "the ledger covers what waits for the store": ("test_the_ledger_covers_up_to_the_oldest_thing_that_is_not_stored"),
    "a stop forgets the last batch": "test_one_that_leaves_at_half_its_margin_has_time_to_drain",
    "the ledger covers past the close": "test_a_close_that_came_with_the_answer_is_not_before_the_opening",
    "what came late is forgotten": "test_what_comes_after_a_silence_is_stored",
    "the position counter restarts with each chunk": (
        "test_the_events_of_a_connection_are_numbered_on_from_chunk_to_chunk"
    ),
}
OF_THE_STORE = {
    "no fence on the cursor": "test_the_cursor_is_never_moved_back_by_an_older_connection",
    "a gap's item is never revised": "test_a_gap_that_was_closed_is_open_again_where_the_connection_broke_off",
    "an event is written without its condition": "test_the_first_writer_of_an_event_wins",
    "nobody is marked as connected": "test_connected_only_grows_and_never_passes_the_fence",
    "the lease is not renewed": "test_only_the_connected_one_renews_and_only_forward",
    "errors of single statements of a batch are ignored": "test_each_statement_answers_for_itself",
    "the store's errors are ignored": "test_a_store_that_throttles_for_ever_is_unavailable",
    "partitions are read one after the other": "test_pages_follow_one_another_in_order",
    "a dead-lettered event is marked before it is sent": "test_without_a_queue_the_event_is_not_dropped",
    "what the table refuses is dropped": "test_a_statement_that_is_refused_goes_to_the_queue_alone",
    "duplicates count as stored": "test_a_write_answers_for_all_its_events",
    "the claim raises no fence": "test_a_claim_raises_the_fence_and_names_the_holder",
    "a claim takes another's turn": "test_a_claim_takes_the_turn_where_nobody_came_since",
    "the standby ignores the stop": "test_a_claim_is_refused_while_a_stop_is_requested",
    "a predecessor claims what its successor has ended": "test_what_is_over_is_not_claimed_for_a_predecessor",
    "a claim asks for no execution's right": "test_a_claim_is_for_the_execution_that_holds_the_stream",
    "connected is marked without a condition": "test_connected_only_grows_and_never_passes_the_fence",
    "released is marked without a condition": "test_released_only_grows",
}
OF_THE_MACHINE = {
    "a lane waits wherever a renewal is due": "test_a_renewal_that_fails_ends_no_lane_and_is_tried_again",
    "a lane waits after a drop": "test_an_outage_ends_no_execution",
    "an execution ends with a killed function": ("test_a_function_that_was_killed_is_followed_by_the_next_at_once"),
    "nobody is told of a death": "test_a_function_that_was_killed_is_followed_by_the_next_at_once",
    "one that the machine has lost is said to be over": (
        "test_what_proves_no_death_is_retried_without_leaving_its_state"
    ),
    "a second POST takes the stream": "test_a_second_execution_names_the_one_that_runs",
    "a claim clears a younger stop request": "test_a_stop_request_after_the_post_holds",
    "who cannot be described is taken for dead": "test_a_claim_outlasts_an_outage",
    "a takeover clears a younger stop request": "test_a_stop_request_while_a_dead_claim_is_taken_over_holds",
}
# Seen in the local service on real processes and sockets (tests/chaos/real/test_real_teeth.py).
REAL = (
    "opens without waiting for the release",
    "a lane waits after a drop",
    "the holder ignores the stop",
)
OF_THE_RESTS = {
    "a rest is not written down": "test_a_rest_holds_for_the_next_function",
    "a rest is not read": "test_a_rest_holds_for_the_next_function",
    "all that rested try at once": "test_a_try_is_taken_once",
    "a failure overwrites another's rest": "test_who_overtook_another_forgets_nothing_of_it",
    "Retry-After is forgotten": "test_a_rest_holds_for_the_next_function",
    "rests do not grow": "test_failures_in_a_row_rest_longer",
    "no connection ends a row of failures": "test_a_row_of_failures_ends_with_a_connection_that_lives",
    "a pause in place is not drawn": "test_failures_in_place_keep_no_step",
    "a function comes back inside its margin": ("test_a_function_comes_back_in_place_with_time_for_more_than_leaving"),
    "the partitions are the profile's own": "test_the_first_claim_fixes_the_partitions",
}
OF_THE_ENTRY = {"the margin is in another unit": "test_what_a_function_is_asked_for"}
# Each with its module; they take no argument.
ELSEWHERE = {
    "only the last segment is read at opening": (test_log, "test_a_new_connection_knows_more_than_the_last_segment"),
    "what another wrote is not read": (test_log, "test_a_writer_reads_what_another_wrote"),
    "a segment is written without its condition": (test_log, "test_a_writer_reads_what_another_wrote"),
    "events are known before they are stored": (test_log, "test_two_writers_number_their_segments_without_a_hole"),
    "its own segment is not recognised": (
        test_log,
        "test_a_segment_that_is_there_twice_by_one_write_counts_as_stored",
    ),
    "a number is left out": (test_log, "test_two_writers_number_their_segments_without_a_hole"),
    "an older connection saves its own cursor": (
        test_log,
        "test_an_older_connection_carries_a_newer_ones_cursor_on",
    ),
    "what waits is dropped when the connection leaves": (
        test_waiting,
        "test_what_waits_is_written_when_the_connection_leaves",
    ),
    "the cursor of what waits is saved": (test_waiting, "test_the_cursor_passes_nothing_that_waits"),
    "the ledger covers what waits for a log": (
        test_waiting,
        "test_a_connection_is_known_good_until_what_waits_had_come",
    ),
    "a segment is read backwards": (test_log, "test_a_segment_is_read_whole_and_in_order"),
    "of a segment the first event is read": (test_log, "test_a_segment_is_read_whole_and_in_order"),
    "where the events lie is the profile's own": (
        test_log,
        "test_a_stream_stays_in_its_log_whatever_its_profile_says_later",
    ),
    "what no segment holds is marked before it is sent": (
        test_log,
        "test_what_no_segment_holds_is_in_the_queue_before_its_mark",
    ),
    "keys are read one partition after the other": (
        test_unordered,
        "test_keys_of_several_partitions_are_read_as_one",
    ),
    "a stream gets its order back": (test_unordered, "test_an_order_that_is_gone_does_not_come_back"),
    "a stream without an order pays for one": (test_unordered, "test_an_order_that_is_gone_does_not_come_back"),
    "events leave the index before the lease says so": (
        test_unordered,
        "test_what_no_index_has_is_not_looked_for_there",
    ),
    "two streams share a partition": (test_event_items, "test_a_stream_may_be_called_as_a_partition_of_another"),
    "a hash depends on how JSON is spelled": (test_events, "test_the_hash_of_a_bare_line_is_that_of_its_bytes"),
    "what the upstream announced as lost is not shown": (
        test_status,
        "test_what_the_upstream_lost_is_a_gap_though_somebody_was_connected",
    ),
    "every gap is shown as closed": (test_status, "test_gaps_with_their_causes"),
    "a refusal is final at once": (test_refusals, "test_the_words_say_for_how_long"),
    "a refusal is asked again at once": (test_refusals, "test_in_place_as_well"),
    "a rejected stream is shown as ended": (
        test_status_words,
        "test_a_connection_that_outlives_its_execution_is_shown_and_decides_nothing",
    ),
    "an event that waits counts as delivered": (test_batch, "test_one_stream_that_waits_holds_up_no_other"),
    "a stream goes on behind what waits": (test_batch, "test_nothing_overtakes_what_waits"),
    "a request holds several of a stream": (
        test_batch,
        "test_without_the_order_a_request_holds_several_of_a_stream",
    ),
    "poison waits": (
        test_batch,
        "test_of_a_batch_that_is_refused_for_good_the_poison_alone_is_buried",
    ),
    "nobody looks whether the queue took it": (test_batch, "test_an_event_that_cannot_be_buried_waits"),
    "of a segment the first event is sent": (test_batch, "test_an_item_and_a_segment_become_what_get_shows"),
    "two streams share a deduplication id": (
        test_sinks,
        "test_a_queue_that_compares_across_groups_gets_an_id_of_stream_and_key",
    ),
    "a batch with poison is buried": (
        test_batch,
        "test_of_a_batch_that_is_refused_for_good_the_poison_alone_is_buried",
    ),
    "what one sink took counts for the other": (test_batch, "test_each_sink_is_remembered_by_itself"),
    "any answer of a webhook takes the event": (test_webhook, "test_the_status_alone_says_what_became_of_an_event"),
    "two streams share an id at a webhook": (test_webhook, "test_an_event_has_one_id_each_time_and_no_other_has_it"),
}
# tests/handlers/connection/test_ledger_teeth.py
OF_THE_LEDGER = {
    "a gap is closed by its length": "test_a_gap_is_open_again_when_the_connection_that_closed_it_breaks_off",
    "one that broke off counts as caught up": "test_a_gap_is_open_again_when_the_connection_that_closed_it_breaks_off",
    "the cursor closes no gap": "test_a_gap_is_closed_where_the_upstream_still_has_what_came_in_it",
    "a default resume that is relieved leaves a gap": "test_a_default_resume_that_is_relieved_leaves_nothing_open",
    "a default resume counts as heeded": "test_a_default_resume_that_is_relieved_leaves_nothing_open",
    "a handover is told as a gap": "test_an_upstream_that_ended_the_stream_has_sent_all_of_it",
    "a loss is told from the opening": (
        "test_an_announced_loss_lies_anywhere_since_all_was_known_until_the_connection_has_caught_up"
    ),
    "a silent connection counts as heard": "test_what_a_dead_peer_may_have_kept_back_is_made_up_for_as_well",
    "half an event counts as heard": "test_half_an_event_at_a_handover_is_in_the_gap",
    "the cursor is given up before the ledger says so": (
        "test_a_cursor_stays_where_the_ledger_could_not_say_that_it_is_too_old"
    ),
    "the cursor is given up though the ledger says nothing": (
        "test_a_cursor_stays_where_the_ledger_could_not_say_that_it_is_too_old"
    ),
}
UNITS = (
    OF_THE_MANAGER
    | OF_THE_STORE
    | OF_THE_MACHINE
    | OF_THE_RESTS
    | OF_THE_ENTRY
    | OF_THE_LEDGER
    | {name: test for name, (_, test) in ELSEWHERE.items()}
)


def managers() -> Mapping[str, type[Manager]]:
    """The defective managers that a unit test catches; where both proofs have one of that name, the model's."""
    defective = {defect.name: defect.manager for defect in chaos_defects.DEFECTS if defect.manager is not None}
    defective |= {
        defect.what: defect.rules.manager for defect in model_defects.DEFECTS if defect.rules.manager is not Manager
    }
    return {name: defective[name] for name in OF_THE_MANAGER}


def table() -> str:
    """The table, in Markdown."""
    in_model = {defect.what: _model(defect) for defect in model_defects.DEFECTS}
    in_chaos = {defect.name: ", ".join(sorted(defect.shows_as)) for defect in chaos_defects.DEFECTS}
    names = dict.fromkeys([*FOREMOST, *in_model, *in_chaos])
    units = {name: f"`{test}`" for name, test in UNITS.items()}
    columns = (in_model, in_chaos, dict.fromkeys(REAL, "yes"), units)
    rows = [f"| {name} | {' | '.join(column.get(name, '') for column in columns)} |" for name in names]
    head = [
        "| defect | the model names | chaos counts | a real run shows it | a unit test fails |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def _model(defect: model_defects.Defect) -> str:
    faults = ", ".join(defect.budget) or "no faults"
    return f"{defect.caught_by} ({defect.policy}, {faults})"


if __name__ == "__main__":
    print(table())
