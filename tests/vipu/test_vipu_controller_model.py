"""The controller against a model of it that is too simple to be wrong."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from vipu_helpers import assert_sound, pod_order

from softipu import errors
from softipu.devices.controller import Controller, PartitionRequest

NAMES = st.sampled_from([f"p{n}" for n in range(6)])
SIZES = st.sampled_from([1, 2, 4, 8, 16, 32, 3, 0])


class ControllerModel(RuleBasedStateMachine):
    """Model: a list of 16 owners. Two controllers on one file stand for two processes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        path = self.folder / "x.sqlite"
        self.controllers = [Controller(path, system="bow-pod16") for _ in range(2)]
        self.owners: list[str | None] = [None] * 16
        self.order = pod_order()

    def teardown(self) -> None:
        for controller in self.controllers:
            controller.close()
        shutil.rmtree(self.folder)

    @rule(
        which=st.integers(0, 1),
        name=NAMES,
        size=SIZES,
        index=st.one_of(st.none(), st.integers(0, 16)),
        gcds=st.sampled_from([1, 1, 2, 4]),
    )
    def create(self, which: int, name: str, size: int, index: int | None, gcds: int) -> None:
        expected = self._expected(name, size, index, gcds)
        request = PartitionRequest(name, size, index=index, num_gcds=gcds)
        try:
            info = self.controllers[which].create_partition(request)
        except errors.SoftIPUError as error:
            assert type(error) is expected
            return
        assert isinstance(expected, int)
        assert [ipu[:2] for ipu in info.ipus] == self.order[expected : expected + size]
        self.owners[expected : expected + size] = [name] * size

    def _expected(
        self, name: str, size: int, index: int | None, gcds: int
    ) -> int | type[errors.SoftIPUError]:
        if size not in (1, 2, 4, 8, 16, 32):
            return errors.InvalidIpuCount
        if gcds > size:
            return errors.InvalidRequest
        if name in self.owners:
            return errors.AlreadyExists
        if size > 16:
            return errors.NotEnoughIpus
        places = list(range(0, 16, size))
        if index is not None:
            if index >= len(places):
                return errors.InvalidRequest
            places = [places[index]]
        for start in places:
            if not any(self.owners[start : start + size]):
                return start
        return errors.NoFreeIpus

    @rule(which=st.integers(0, 1), name=NAMES, force=st.booleans(), busy=st.booleans())
    def remove(self, which: int, name: str, force: bool, busy: bool) -> None:
        holders = (lambda ipus: ["somebody"]) if busy else (lambda ipus: [])
        expected: type[errors.SoftIPUError] | None = None
        if name not in self.owners:
            expected = errors.UnknownPartition
        elif busy and not force:
            expected = errors.InUse
        try:
            self.controllers[which].remove_partition(name, force=force, holders=holders)
        except errors.SoftIPUError as error:
            assert type(error) is expected
            return
        assert expected is None
        self.owners = [None if owner == name else owner for owner in self.owners]

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        path = self.controllers[which].path
        self.controllers[which].close()
        self.controllers[which] = Controller(path)

    @invariant()
    def files_agree_with_the_model(self) -> None:
        for reader in (*self.controllers, Controller(self.controllers[0].path, read_only=True)):
            infos = reader.partitions()
            assert_sound(infos, self.order)
            owners: list[str | None] = [None] * 16
            for info in infos:
                for host, device_id, _ in info.ipus:
                    owners[self.order.index((host, device_id))] = info.id
            assert owners == self.owners

    @invariant()
    def nothing_lies_beside_the_file(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            names = {path.name for path in self.folder.iterdir()}
            assert names <= {"x.sqlite", "x.sqlite-wal", "x.sqlite-shm"}


TestControllerModel = ControllerModel.TestCase
TestControllerModel.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
