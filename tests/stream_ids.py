"""Stream ids for generated tests: any text, most of it of what somebody on the way could take for its own."""

from hypothesis import strategies as st

from handlers.profile.addresses import ProfileError, check_stream_id

# RFC 3986, section 3.3: what a segment of a path may hold without percent-encoding.
PCHAR = "-._~!$&'()*+,;=:@"
# What an encoding, Velocity, JSON, a regular expression or a path has a meaning for.
_TRICKY = [
    "/", "//", "..", ".", ":", "+", "=", "%", "%2F", "%41", "#", "#0", "#if(1)", "?", "&", "$x", "${x}", "'", '"', "\\",
    "\\'", "{name}", " ", "\n", "\0", "\x85", "\ufffd", "\u2028", "é", "😀",
]  # fmt: skip
# What follows the profile's name and a colon; a surrogate alone cannot be percent-encoded.
NAMES = st.lists(st.sampled_from(_TRICKY) | st.characters(exclude_categories=["Cs"]), max_size=8).map("".join)


def is_sound(stream_id: str) -> bool:
    """Whether the function accepts the id."""
    try:
        check_stream_id(stream_id)
    except ProfileError:
        return False
    return True
