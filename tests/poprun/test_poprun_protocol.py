"""Messages between poprun and agents: whole or not at all, and nothing else is believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softipu.poprun import protocol
from softipu.poprun.protocol import Decoder, Garbled, encode

messages = st.dictionaries(
    st.text(max_size=8).filter(lambda key: key != "bytes"),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.lists(st.integers())
    ),
    max_size=4,
)


@given(st.lists(st.tuples(messages, st.binary(max_size=50)), max_size=6), st.data())
@settings(deadline=None)
def test_messages_come_out_as_they_went_in_however_they_are_cut(sent, data):
    wire = b"".join(encode(message, payload) for message, payload in sent)
    decoder, got = Decoder(), []
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        got += decoder.feed(wire[:size])
        wire = wire[size:]
    assert got == sent


def test_names_and_values_outside_unicode_travel_too():
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    [(message, _)] = Decoder().feed(encode({"environment": {odd: odd}}))
    assert message["environment"] == {odd: odd}


@pytest.mark.parametrize(
    "noise",
    [b"Welcome!\n", b"[1, 2]\n", b'"text"\n', b'{"bytes": -1}\n', b'{"bytes": "many"}\n',
     b'{"bytes": 99999999999}\n', b"\xff\xfe\n", b"\n"],
)  # fmt: skip
def test_noise_is_no_message(noise):
    with pytest.raises(Garbled):
        list(Decoder().feed(noise))


def test_a_line_without_end_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(protocol, "LARGEST_LINE", 100)
    with pytest.raises(Garbled):
        list(Decoder().feed(b"x" * 200))


def test_a_message_is_one_line():
    assert encode({"out": [1, 2]}, b"a\nb").split(b"\n", 1) == [b'{"out":[1,2],"bytes":3}', b"a\nb"]
    assert json.loads(encode({"text": "a\nb"})) == {"text": "a\nb"}
