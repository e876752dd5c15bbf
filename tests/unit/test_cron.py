"""Cron: the verified cases, the messages, the notes, the edges of the calendar, the zones."""

from __future__ import annotations

import json
import struct
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota.errors import Invalid
from rota.model.cron import Cron, parse_zone

CASES = json.loads((Path(__file__).parents[1] / "data" / "cron_cases.json").read_text())["cases"]
BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def cases(*semantics: str) -> list[Any]:
    chosen = [case for case in CASES if case["semantics"] in semantics]
    assert chosen, semantics
    return [pytest.param(case, id=f"{case['note'][:60]}") for case in chosen]


def times(text: str, after: str, zone: ZoneInfo, dst: str = "vixie", count: int = 1) -> list[str]:
    """The next occurrences as local ISO 8601, fewer if they end."""
    cron, moment, found = Cron.parse(text), datetime.fromisoformat(after), []
    for _ in range(count):
        following = cron.next_after(moment, zone, dst)
        if following is None:
            break
        assert following.tzinfo is UTC
        found.append(following.astimezone(zone).isoformat())
        moment = following
    return found


def test_no_case_is_left_out() -> None:
    known = {"vixie", "literal", "skip_once", "reject", "never", "cursor"}
    assert {case["semantics"] for case in CASES} == known
    assert len(CASES) == 147


@pytest.mark.parametrize("case", cases("vixie", "literal", "skip_once"))
def test_occurrences_are_the_verified_ones(case: dict[str, Any]) -> None:
    wanted = case["expect"]
    zone, dst = parse_zone(case["tz"]), case["semantics"]
    assert times(case["expr"], case["after"], zone, dst, len(wanted)) == wanted


@pytest.mark.parametrize("case", cases("reject"))
def test_what_cannot_be_meant_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"cron .* (use|did you mean|remove) "):
        Cron.parse(case["expr"])


@pytest.mark.parametrize("case", cases("never"))
def test_a_date_that_never_comes_gives_none(case: dict[str, Any]) -> None:
    assert times(case["expr"], case["after"], parse_zone(case["tz"])) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("61 * * * *", "cron '61 * * * *' has minute 61; use 0-59"),
        ("60 0 0 * * *", "cron '60 0 0 * * *' has second 60; use 0-59"),
        ("* * * FOO *", "cron '* * * FOO *' has month FOO; use 1-12 or JAN-DEC"),
        ("0 0 * * 8", "cron '0 0 * * 8' has weekday 8; use 0-7 or SUN-SAT"),
        ("0 0 0 1 1 ? 2100", "cron '0 0 0 1 1 ? 2100' has year 2100; use 1970-2099"),
        ("*/0 * * * *", "cron '*/0 * * * *' has minute step 0; use 1-60"),
        ("*/ * * * *", "cron '*/ * * * *' has minute step missing; use 1-60"),
        (
            "0 0 * * 5-1",
            "cron '0 0 * * 5-1' has weekday range 5-1; use 0-7 or SUN-SAT, the smaller value first",
        ),
        (
            "1,,2 * * * *",
            "cron '1,,2 * * * *' has an empty minute in a list; remove the extra comma",
        ),
        (
            "* *",
            "cron '* *' has 2 fields; use 5, 6 (seconds first) or 7 (seconds first, year last)",
        ),
        ("@dialy", "cron '@dialy' has the unknown macro @dialy; did you mean @daily?"),
        ("0 0 3 * * MONDAY", "cron '0 0 3 * * MONDAY' has weekday MONDAY; use 0-7 or SUN-SAT"),
        (
            "/5 * * * *",
            "cron '/5 * * * *' has minute /5; write what comes before the step, such as */5",
        ),
        (
            "@every 5m",
            "cron '@every 5m' has @every; an interval is not cron, use every = '5m'",
        ),
    ],
)
def test_a_message_names_the_field_the_value_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        Cron.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("timing", "command"),
    [
        ("0 3 * * *", "/srv/backup.sh"),
        ("*/10 * * * *", "flock -n /tmp/feed.lock python3 feed.py"),
        ("0 3 * * *", "root /srv/backup.sh"),
        ("@daily", "/srv/backup.sh"),
    ],
)
def test_a_line_of_a_crontab_is_told_where_its_command_belongs(timing: str, command: str) -> None:
    with pytest.raises(Invalid) as caught:
        Cron.parse(f"{timing}  {command}")
    assert f"a command behind its fields, {command!r}; keep {timing!r}" in str(caught.value)
    assert "a sixth field would mean that seconds come first" in str(caught.value)
    assert str(caught.value).endswith("put the command into the job's `command`")


@pytest.mark.parametrize(
    "text",
    [
        "? * * * *",
        "* ? * * *",
        "* * * ? *",
        "* * ?,1 * *",
        "* * W * *",
        "* * *W * *",
        "* * 1-5W * *",
        "* * L-0 * *",
        "* * L- * *",
        "* * 1-L * *",
        "* * LW-1 * *",
        "* * * * L",
        "* * * * L5",
        "* * * * 5#0",
        "* * * * 5#",
        "* * * * #1",
        "* * * * 5#1#1",
        "* * * * 1-5#1",
        "* * * * SUN-SUNDAY",
        "* * * JANUARY *",
        "*-5 * * * *",
        "*5 * * * *",
        "5- * * * *",
        "1-2-3 * * * *",
        "+5 * * * *",
        "/5 * * * *",
        "@",
        "@reboot",
        "@daily extra",
        "* * * * * * * *",
        "0 0 1\u00a01 * *",
        "0 0 * * \u017fun",
    ],
)
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        Cron.parse(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("@MidNight", "0 0 * * *"),
        ("@monthly", "0 0 1 * *"),
        ("0 0 * * fri-sun", "0 0 * * 5,6,0"),
        ("0 0 * * mon-sun", "0 0 * * *"),
        ("0 0 * * SUN-sat/2", "0 0 * * 0,2,4,6"),
        ("0 0 * * friL", "0 0 * * 5L"),
        ("0 0 * * sun#2", "0 0 * * 7#2"),
        ("00 007 * * *", "0 7 * * *"),
        ("*/60 */24 * * *", "0 0 * * *"),
        ("0\t5 * * *\n", "0 5 * * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 31,L 2 *", "0 0 L 2 *"),
    ],
)
def test_two_spellings_mean_the_same(text: str, same: str) -> None:
    after = "2025-01-31T05:00:00+00:00"
    zone = parse_zone("UTC")
    assert times(text, after, zone, count=40) == times(same, after, zone, count=40)


def test_the_longest_text_is_accepted_and_one_more_is_not() -> None:
    longest = "0" * (256 - len(" * * * *")) + " * * * *"
    assert Cron.parse(longest).text == longest
    with pytest.raises(Invalid, match="has 257 characters; use at most 256"):
        Cron.parse("0" + longest)


def test_an_unknown_dst_rule_is_refused() -> None:
    with pytest.raises(Invalid, match="dst 'quartz' is unknown; use vixie, literal or skip_once"):
        times("* * * * *", "2025-01-01T00:00:00+00:00", BERLIN, "quartz")


def test_a_time_without_a_zone_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError):
        Cron.parse("* * * * *").next_after(datetime(2025, 1, 1), BERLIN)


def test_the_calendar_begins_in_1970_and_ends_in_2099() -> None:
    zone = parse_zone("UTC")
    hourly = Cron.parse("@hourly")
    assert hourly.next_after(datetime.min.replace(tzinfo=UTC), zone) == datetime(
        1970, 1, 1, tzinfo=UTC
    )
    assert times("@hourly", "2099-12-31T22:30:00+00:00", zone, count=3) == [
        "2099-12-31T23:00:00+00:00"
    ]
    assert hourly.next_after(datetime.max.replace(tzinfo=UTC), zone) is None


def test_the_last_local_hours_of_2099_count_where_utc_is_in_2100() -> None:
    found = times("0 23 * * *", "2099-12-31T12:00:00-05:00", NEW_YORK, count=2)
    assert found == ["2099-12-31T23:00:00-05:00"]


def test_a_fraction_of_a_second_is_rounded_down_first() -> None:
    zone = parse_zone("UTC")
    assert times("* * * * * *", "2025-01-01T00:00:00.999999+00:00", zone) == [
        "2025-01-01T00:00:01+00:00"
    ]
    assert times("* * * * * *", "2025-01-01T00:00:00.000001+00:00", zone) == [
        "2025-01-01T00:00:01+00:00"
    ]


def test_a_repeated_hour_counts_even_if_no_later_day_matches() -> None:
    found = times("0 30 1 2 11 ? 2025", "2025-11-02T00:00:00-04:00", NEW_YORK, "literal", 3)
    assert found == ["2025-11-02T01:30:00-04:00", "2025-11-02T01:30:00-05:00"]


def test_what_the_clock_showed_before_it_was_set_back_does_not_count_again() -> None:
    second_pass = "2025-11-02T01:15:00-05:00"
    assert times("30 1 * * *", second_pass, NEW_YORK) == ["2025-11-03T01:30:00-05:00"]
    assert times("30 * * * *", second_pass, NEW_YORK) == ["2025-11-02T01:30:00-05:00"]


def test_a_second_that_begins_with_a_star_follows_real_time() -> None:
    found = times("*/30 30 2 * * *", "2025-03-29T12:00:00+01:00", BERLIN, count=1)
    assert found == ["2025-03-31T02:30:00+02:00"]


def test_a_gap_of_three_hours_is_a_correction_and_not_daylight_saving() -> None:
    casey = parse_zone("Antarctica/Casey")  # 2009-10-18 02:00 +08:00 -> 05:00 +11:00
    found = times("30 3 * * *", "2009-10-17T12:00:00+08:00", casey, count=1)
    assert found == ["2009-10-19T03:30:00+11:00"]


def test_a_gap_with_odd_seconds_ends_at_its_very_second() -> None:
    monrovia = parse_zone("Africa/Monrovia")  # 1972-01-07 00:00:00 -00:44:30 -> 00:44:30 +00:00
    found = times("30 0 * * *", "1972-01-06T12:00:00+00:00", monrovia, count=2)
    assert found == ["1972-01-07T00:44:30+00:00", "1972-01-08T00:30:00+00:00"]


def test_an_overlap_over_midnight_repeats_the_day_before() -> None:
    st_johns = parse_zone("America/St_Johns")  # 2005-10-30 00:01 -> 2005-10-29 23:01
    assert times("30 23 29 10 *", "2005-10-29T12:00:00-02:30", st_johns, "literal", 2) == [
        "2005-10-29T23:30:00-02:30",
        "2005-10-29T23:30:00-03:30",
    ]
    assert times("30 23 * * *", "2005-10-29T12:00:00-02:30", st_johns, count=2) == [
        "2005-10-29T23:30:00-02:30",
        "2005-10-30T23:30:00-03:30",
    ]


@pytest.mark.parametrize(
    ("text", "zone", "at", "note"),
    [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2025-03-30T03:00:00+02:00",
            "02:30 does not exist on this day (clocks go forward); runs at 03:00",
        ),
        (
            "30 23 * * *",
            "Asia/Pyongyang",
            "2018-05-05T00:00:00+09:00",
            "23:30 does not exist on the day before (clocks go forward); runs at 00:00",
        ),
        (
            "30 0 * * *",
            "Africa/Monrovia",
            "1972-01-07T00:44:30+00:00",
            "00:30 does not exist on this day (clocks go forward); runs at 00:44:30",
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2025-10-26T02:30:00+02:00",
            "02:30 happens twice on this day; runs at the first",
        ),
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            "2025-10-26T02:30:00+01:00",
            "02:30 happens twice on this day; runs at both",
        ),
        ("0 3 * * *", "Europe/Berlin", "2025-03-30T03:00:00+02:00", None),
        ("0 * * * *", "Europe/Berlin", "2025-03-30T03:00:00+02:00", None),
        ("0 3 * * *", "Europe/Berlin", "2025-10-26T03:00:00+01:00", None),
        ("30 2 * * *", "Europe/Berlin", "2025-06-01T02:30:00+02:00", None),
        ("0 0 * * *", "Pacific/Apia", "2011-12-31T00:00:00+14:00", None),
        ("0 3,5 * * *", "Antarctica/Casey", "2009-10-18T05:00:00+11:00", None),
    ],
)
def test_a_note_says_what_a_clock_change_did(
    text: str, zone: str, at: str, note: str | None
) -> None:
    moment = datetime.fromisoformat(at)
    before = (moment.astimezone(UTC) - timedelta(seconds=1)).isoformat()
    assert times(text, before, parse_zone(zone)) == [at]
    assert Cron.parse(text).note(moment.astimezone(UTC), parse_zone(zone), "vixie") == note


def test_a_note_follows_the_dst_rule() -> None:
    cron = Cron.parse("30 2 * * *")
    twice = datetime.fromisoformat("2025-10-26T02:30:00+02:00")
    assert cron.note(twice, BERLIN, "literal") == "02:30 happens twice on this day; runs at both"
    wild = Cron.parse("*/30 2 * * *").note(twice, BERLIN, "skip_once")
    assert wild == "02:30 happens twice on this day; runs at the first"
    after_the_gap = datetime.fromisoformat("2025-03-30T03:00:00+02:00")
    assert Cron.parse("0 2,3 * * *").note(after_the_gap, BERLIN, "literal") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("new york", "did you mean 'America/New_York'?"),
        ("", "use a name like 'Europe/Berlin'"),
        ("Europe", "did you mean "),
        ("/etc/localtime", ""),
        ("/usr/share/zoneinfo/Europe/Berlin", ""),
        ("../zoneinfo/UTC", ""),
        ("Europe/../UTC", ""),
        ("Europe//Berlin", ""),
        ("UTC\0", ""),
        ("right/UTC", ""),
        ("leapseconds", ""),
        ("Ber\udcfflin", ""),
    ],
)
def test_an_unknown_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_zone(name)
    assert str(caught.value).startswith(f"timezone {name!r} is unknown; {hint}")


def test_a_zone_name_has_a_limit() -> None:
    with pytest.raises(Invalid, match="timezone name has 65 characters; use at most 64"):
        parse_zone("x" * 65)


@pytest.fixture
def forget_local_zone() -> Any:
    parse_zone.cache_clear()
    yield
    parse_zone.cache_clear()


@pytest.mark.usefixtures("forget_local_zone")
@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (":Asia/Tokyo", "Asia/Tokyo"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("", "UTC"),
    ],
)
def test_local_is_the_zone_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, setting: str, key: str
) -> None:
    monkeypatch.setenv("TZ", setting)
    assert parse_zone("local").key == key


@pytest.mark.usefixtures("forget_local_zone")
def test_a_local_zone_without_a_name_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST")
    with pytest.raises(Invalid, match="set TZ to a name like 'Europe/Berlin'"):
        parse_zone("local")


@pytest.mark.usefixtures("forget_local_zone")
@pytest.mark.parametrize("kind", ["link", "copy", "absent"])
def test_without_tz_local_is_what_the_machine_was_set_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    zones = tmp_path / "zoneinfo" / "Asia"
    zones.mkdir(parents=True)
    (zones / "Tokyo").write_bytes(zone_file("Asia/Tokyo"))
    localtime = tmp_path / "localtime"
    match kind:
        case "link":
            localtime.symlink_to(zones / "Tokyo")
        case "copy":
            localtime.write_bytes(zone_file("Asia/Tokyo"))
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr("rota.model.zone._LOCALTIME", str(localtime))
    hours = 0 if kind == "absent" else 9
    offset = datetime(2025, 1, 1, tzinfo=parse_zone("local")).utcoffset()
    assert offset == timedelta(hours=hours)


def test_no_zone_changes_its_clocks_twice_within_six_days() -> None:
    """`Cron.next_after` relies on it: equal offsets two days apart mean no change in between."""
    for name in zoneinfo.available_timezones():
        changes = clock_changes(zone_file(name))
        for (early, _), (late, _) in pairwise(changes):
            assert late - early > timedelta(days=6), (name, late)
        for moment, seconds in changes:
            assert seconds > -86_400, (name, moment)


def zone_file(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / name).is_file():
            return (Path(folder) / name).read_bytes()
    return (resources.files("tzdata") / "zoneinfo" / name).read_bytes()


def clock_changes(content: bytes) -> list[tuple[datetime, int]]:
    """When and by how many seconds the clock changes since 1970, from a TZif file (RFC 9636)."""
    header = struct.Struct(">20x6l")
    utc, std, leaps, count, types, letters = header.unpack_from(content)
    # The first block has 32-bit times; the second one, which follows, has 64-bit times.
    start = header.size + count * 5 + types * 6 + letters + leaps * 8 + std + utc
    *_, count, types, letters = header.unpack_from(content, start)
    body = start + header.size
    seconds = struct.unpack_from(f">{count}q", content, body)
    kinds = struct.unpack_from(f">{count}B", content, body + 8 * count)
    offsets = [
        struct.unpack_from(">l", content, body + 9 * count + 6 * kind)[0] for kind in range(types)
    ]
    changes, current = [], offsets[0]
    for second, kind in zip(seconds, kinds, strict=True):
        jump, current = offsets[kind] - current, offsets[kind]
        if jump and second > 0:
            changes.append((datetime.fromtimestamp(second, UTC), jump))
    return changes
