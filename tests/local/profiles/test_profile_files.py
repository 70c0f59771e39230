"""The check of a profile before its stream is started."""

from pathlib import Path

from local.profiles import profile_files


def test_a_bad_profile_is_refused_by_name(tmp_path: Path) -> None:
    """Invalid TOML, a missing field and a missing variable are refused with the profile's name."""
    (tmp_path / "torn.toml").write_text("address = ")
    (tmp_path / "short.toml").write_text('framing = "sse"\n')
    (tmp_path / "needy.toml").write_text('framing = "sse"\naddress = "${UPSTREAM_X}/y"\n')
    for name, words in {"torn": "not valid TOML", "short": "address is missing", "needy": "UPSTREAM_X"}.items():
        problem = profile_files.check(name, tmp_path, {})
        assert problem is not None
        named = f"the profile '{name}'" in problem.detail
        assert (problem.status, problem.field, named, words in problem.detail) == (422, "profile", True, True)
