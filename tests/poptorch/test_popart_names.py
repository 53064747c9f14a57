"""`import popart` in PopTorch programs: enumerations for options, and a clear word on the rest."""

from __future__ import annotations

import pickle

import pytest

import popart
import poptorch
from poptorch import _options_popart
from softipu.errors import PopartNotThere


def enumerations() -> list[str]:
    return sorted(name for name in popart.__all__ if name[0].isupper())


def test_options_take_the_numbers() -> None:
    options = poptorch.Options()
    options._Popart.set("autoRecomputation", int(popart.RecomputationType.RecomputeAll))
    options._Popart.set("syntheticDataMode", int(popart.SyntheticDataMode.RandomNormal))
    options.enableSyntheticData(int(popart.SyntheticDataMode.RandomNormal))
    options._Popart.set(
        "accumulateOuterFragmentSettings.schedule",
        int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized),
    )
    options._Popart.set("subgraphCopyingStrategy", int(popart.SubgraphCopyingStrategy.JustInTime))


@pytest.mark.parametrize("name", enumerations())
def test_members_are_as_many_as_the_option_takes(name: str) -> None:
    kind = getattr(popart, name)
    assert [int(member) for member in kind] == list(range(len(kind)))
    assert pickle.loads(pickle.dumps(kind(0))) is kind(0)
    limits = {
        option.limit
        for option in _options_popart.SESSION_OPTIONS.values()
        if option.choices.removeprefix("popart::") == name
    }
    assert not limits or limits == {len(kind)}


def test_graphs_of_popart_are_refused_with_the_way_out() -> None:
    with pytest.raises(PopartNotThere, match=r"(?s)popart.Builder.*PyTorch"):
        popart.Builder()
    assert not hasattr(popart, "TrainingSession")


def test_it_says_which_version_it_stands_for() -> None:
    assert popart.versionString().startswith(popart.__version__)
