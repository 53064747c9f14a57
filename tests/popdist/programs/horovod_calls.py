"""An instance that makes every call of horovod.torch and checks it against plain arithmetic."""

import pytest
import torch

import horovod.torch as hvd


def main() -> None:
    with pytest.raises(Exception, match=r"use hvd\.init"):
        hvd.rank()
    hvd.init()
    me, count = hvd.rank(), hvd.size()
    assert count == 3
    assert hvd.is_initialized()
    assert (hvd.local_rank(), hvd.local_size()) == (me, 3)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    assert (hvd.mpi_built(), hvd.gloo_enabled()) == (False, True)
    mine = torch.tensor([1.0, 2.0, 3.0]) * (me + 1)
    kept = mine.clone()
    for given, expected in (
        ({}, 2.0), ({"average": True}, 2.0), ({"average": False}, 6.0), ({"op": hvd.Sum}, 6.0),
        ({"op": hvd.Average}, 2.0), ({"op": hvd.Min}, 1.0), ({"op": hvd.Max}, 3.0),
        ({"op": hvd.Sum, "prescale_factor": 0.5}, 3.0),
        ({"op": hvd.Sum, "postscale_factor": 2.0}, 12.0),
    ):  # fmt: skip
        result = hvd.allreduce(mine, **given)
        torch.testing.assert_close(result, torch.tensor([1.0, 2.0, 3.0]) * expected)
        assert torch.equal(mine, kept)
    assert hvd.allreduce(torch.tensor(me + 1), op=hvd.Product).item() == 6
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce(mine, average=True, op=hvd.Sum)
    whole = hvd.allreduce(torch.tensor([3, me // 2, -(me // 2)]))  # Horovod rounds down
    assert (whole.dtype, whole.tolist()) == (torch.int64, [3, 0, -1])
    again = hvd.synchronize(hvd.allreduce_async_(mine, op=hvd.Sum))
    assert again is mine
    torch.testing.assert_close(mine, torch.tensor([6.0, 12.0, 18.0]))
    transposed = torch.arange(6.0).view(2, 3).t() * 1
    hvd.allreduce_(transposed.t(), op=hvd.Sum)
    torch.testing.assert_close(transposed, torch.arange(6.0).view(2, 3).t() * 3)
    tensors = [torch.tensor([me]), torch.ones(2, 2) * me, torch.tensor(1.5)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    assert [t.tolist() for t in results] == [[3], [[3.0, 3.0], [3.0, 3.0]], 4.5]
    assert [t.dtype for t in results] == [t.dtype for t in tensors]
    ragged = torch.full((me, 2), me, dtype=torch.int32)
    assert hvd.allgather(ragged).tolist() == [[1, 1], [2, 2], [2, 2]]
    assert hvd.allgather(torch.tensor(me)).tolist() == [0, 1, 2]
    assert hvd.broadcast(torch.tensor([me]), root_rank=2).item() == 2
    for dtype in (torch.bool, torch.int16, torch.bfloat16, torch.complex64):
        mine = torch.tensor([[me == 1, True, False]]).to(dtype)
        assert torch.equal(hvd.broadcast(mine, 1), torch.tensor([[True, True, False]]).to(dtype))
        wanted = torch.tensor([[rank == 1, True, False] for rank in range(3)]).to(dtype)
        assert torch.equal(hvd.allgather(mine), wanted)
    with pytest.raises(Exception, match=r"torch\.bool cannot be reduced"):  # and no more happens
        hvd.allreduce(torch.tensor([True]), op=hvd.Sum)
    torch.manual_seed(me)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model.register_buffer("mask", torch.tensor([me == 1]))
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    torch.manual_seed(1)
    same = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    same.register_buffer("mask", torch.tensor([True]))
    for name, value in model.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (me + 1), momentum=0.9)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.3)
    states = hvd.allgather_object([s["momentum_buffer"] for s in optimizer.state.values()])
    for state in states[1:]:
        for one, other in zip(state, states[0], strict=True):
            assert torch.equal(one, other)
    assert hvd.broadcast_object({"rank": me}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object("x" * me) == ["", "x", "xx"]
    with pytest.raises(Exception, match="no instance 9"):
        hvd.broadcast(torch.zeros(1), root_rank=9)
    with pytest.raises(Exception, match="PopTorch reduces gradients itself"):
        hvd.DistributedOptimizer(optimizer)
    assert hvd.poll(hvd.broadcast_async(torch.zeros(1), 0))
    hvd.barrier()
    assert hvd.join() == 2
    hvd.shutdown()
    assert not hvd.is_initialized()
    print('"done"', flush=True)


main()
