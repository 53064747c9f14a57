"""What all servers of softipu share: where they listen, keys, host names."""

from __future__ import annotations

import socket

import pytest

from softipu.errors import InvalidSetting, PortInUse, UnsafeBind
from softipu.tools import serving


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost"])
def test_loopback_needs_no_key(host):
    with serving.listen(host, 0, key=None) as listener:
        assert serving.is_local(listener)


def test_every_other_address_does():
    with pytest.raises(UnsafeBind, match="no access key"):
        serving.listen("0.0.0.0", 0, key=None)
    with serving.listen("0.0.0.0", 0, key="a-key-that-is-long") as listener:
        assert not serving.is_local(listener)
        assert serving.public_name(listener) == socket.gethostname()


@pytest.mark.parametrize("text", ["", "short", "has a blank in it", "ünïcödé-key", "tab\there-key"])
def test_weak_or_unsendable_keys_are_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text + "\n")
    with pytest.raises(InvalidSetting):
        serving.access_key(path)


def test_a_key_comes_from_the_file_before_anything_else(tmp_path, capsys):
    path = tmp_path / "key"
    path.write_text("from-the-file\n")
    path.chmod(0o600)
    assert serving.access_key(path, "from-elsewhere") == "from-the-file"
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    serving.access_key(path)
    assert "other users may read" in capsys.readouterr().err
    assert serving.access_key(None, "from-elsewhere") == "from-elsewhere"
    assert serving.access_key(None) is None
    with pytest.raises(InvalidSetting, match="cannot be read"):
        serving.access_key(tmp_path / "gone")


def test_a_taken_port_is_an_error_of_its_own():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortInUse):
        serving.listen("127.0.0.1", taken.getsockname()[1], key=None)


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "a b"])
def test_an_address_that_is_not_ours_is_refused(host):
    with pytest.raises(InvalidSetting):
        serving.listen(host, 0, key=None)


def test_host_headers_lose_their_port_and_their_capitals():
    headers = ("a:80", "A", "[::1]:8", "[::1]", "")
    assert [serving.host_name(one) for one in headers] == ["a", "a", "[::1]", "[::1]", ""]


def test_only_names_of_this_machine_are_its_own():
    for name in ("localhost", "127.0.0.9", "[::1]", "myhost"):
        assert serving.is_own_name(name, listening_on="MyHost")
    for name in ("", "10.0.0.1", "localhost.evil", "0.0.0.0", "evil.example"):
        assert not serving.is_own_name(name, listening_on="127.0.0.1")


def test_only_the_whole_key_opens():
    assert serving.has_bearer("Bearer s3cret-key", b"s3cret-key")
    assert serving.has_bearer("bearer  s3cret-key ", b"s3cret-key")
    for header in ("", "s3cret-key", "Basic s3cret-key", "Bearer s3cret-ke", "Bearer é"):
        assert not serving.has_bearer(header, b"s3cret-key")
