"""The arguments of `docker run`: which word is the image, and what the options say."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu.containers.run_arguments import FLAGS, SHORT, VALUED, RunArguments, parse
from softipu.errors import RunArgumentsUnclear


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("image", "image"),
        ("-it image bash -c ls", "image"),
        ("-it -v .:/workspace -w /workspace --entrypoint /bin/bash poprt:1.4.0", "poprt:1.4.0"),
        ("-ti -e IPUOF_VIPU_API_HOST -e IPUOF_VIPU_API_PARTITION_ID tensorflow:2", "tensorflow:2"),
        ("--rm -d --name APP TAG", "TAG"),
        ("--rm --name=APP TAG --name not-ours", "TAG"),
        ("-it --rm --detach --user root -p 127.0.0.1:80:80 image x", "image"),
        ("-eNAME=VALUE -uroot image", "image"),
        ("-itv /a:/b image", "image"),
        ("-d=false image", "image"),
        ("--unheard-of=1 image", "image"),
        ("--gpus all image", "image"),
        ("-- image", "image"),
        ("--rm -- -odd-name", "-odd-name"),
    ],
)
def test_the_image_is_the_first_word_that_belongs_to_no_option(line, image):
    assert parse(line.split()).image == image


def test_words_stay_as_they_are():
    words = ["-it", "-e", "A=b c", "image", "--rm", ""]
    assert parse(words).words == tuple(words)


def test_options_are_known_by_their_long_names():
    found = parse(["-it", "-e", "A=1", "--env", "B", "--net=host", "-u", "7:8", "image"])
    assert found.options == (
        ("interactive", None), ("tty", None), ("env", "A=1"), ("env", "B"),
        ("network", "host"), ("user", "7:8"),
    )  # fmt: skip
    assert found.values("env") == ["A=1", "B"]
    assert found.last("env") == "B"
    assert found.last("volume") is None
    assert found.has("tty", "rm")
    assert not found.has("rm")


def test_mounts_are_found_in_all_their_forms():
    line = (
        "-v /a:/x:ro -v named:/y -v /z --mount type=bind,src=/b,dst=/m "
        "--mount type=tmpfs,target=/n --tmpfs /t:size=1 image"
    )
    targets = list(parse(line.split()).mount_targets())
    assert targets == ["/x", "/y", "/z", "/m", "/n", "/t"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "No image"),
        ("-it", "No image"),
        ("--rm --", "No image"),
        ("-it --name", "needs a value"),
        ("-v", "needs a value"),
        ("--unheard-of image", "--unheard-of is not known"),
        ("-itx image", "-x is not an option"),
    ],
)
def test_what_cannot_be_understood_is_refused(line, reason):
    with pytest.raises(RunArgumentsUnclear, match=reason):
        parse(line.split())


def test_an_empty_image_is_most_likely_an_unset_variable():
    with pytest.raises(RunArgumentsUnclear, match="variable not set"):
        parse(["--rm", ""])


_values = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
_options = st.one_of(
    st.sampled_from(sorted(FLAGS)).map(lambda name: [f"--{name}"]),
    st.tuples(st.sampled_from(sorted(VALUED)), _values).map(lambda o: [f"--{o[0]}", o[1]]),
    st.tuples(st.sampled_from(sorted(VALUED)), _values).map(lambda o: [f"--{o[0]}={o[1]}"]),
    st.tuples(
        st.text("".join(k for k, v in SHORT.items() if v in FLAGS), max_size=3),
        st.sampled_from([k for k, v in SHORT.items() if v in VALUED]),
        _values,
    ).map(lambda o: [f"-{o[0]}{o[1]}", o[2]]),
)


@given(
    st.lists(_options, max_size=8),
    st.from_regex(r"[a-z0-9][a-z0-9/:._-]*", fullmatch=True),
    st.lists(_values, max_size=4),
)
def test_any_options_before_any_image_are_taken_apart_again(options, image, rest):
    words = [word for option in options for word in option] + [image, *rest]
    found = parse(words)
    assert isinstance(found, RunArguments)
    assert found.image == image
    assert found.words == tuple(words)


def test_no_option_both_takes_a_value_and_does_not():
    assert not FLAGS & VALUED
    assert set(SHORT.values()) <= FLAGS | VALUED


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_the_lists_agree_with_the_engines_own_help(engine):
    """A newer engine may have options more than ours; none of ours may be of the other kind."""
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} here")
    answer = subprocess.run([engine, "run", "--help"], capture_output=True, text=True, timeout=60)
    found = re.findall(r"^ +(?:-(\w), )?--([a-z0-9-]+)( \S+)?(?= {2}|$)", answer.stdout, re.M)
    assert len(found) > 50
    for short, name, kind in found:
        if name in FLAGS | VALUED:
            assert (name in VALUED) == bool(kind), name
        if short:
            assert SHORT[short] == name
    unknown = {name for _, name, _ in found} - FLAGS - VALUED
    assert len(unknown) < 10, unknown
