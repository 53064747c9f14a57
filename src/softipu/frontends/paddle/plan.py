"""How one run divides into micro-batches, and on how many IPUs: read from the strategy once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softipu.errors import InvalidIpuOption, InvalidIpuPlacement

from .strategy import IpuStrategy

#: By the numbers of PopART's ReductionType; the strategy refuses its third.
_REDUCTIONS = ("sum", "mean")
_NO_SEED = 2**64 - 1


@dataclass(frozen=True)
class Plan:
    training: bool
    num_ipus: int
    micro_batch: int
    batches_per_step: int
    #: Micro-batches whose gradients one update takes together; None: not enabled.
    accumulation: int | None
    replicas: int | None
    reduction: str
    pipelined: bool
    manual_shards: bool
    average_shards: bool
    loss_scaling: float
    #: Fill up short batches and return as many rows as were fed.
    pads_batches: bool
    random_seed: int | None

    @property
    def micro_batches_per_update(self) -> int:
        return (self.accumulation or 1) * (self.replicas or 1)

    @property
    def micro_batches(self) -> int:
        return self.batches_per_step * self.micro_batches_per_update

    @property
    def ipus_per_replica(self) -> int:
        return self.num_ipus // (self.replicas or 1)

    @property
    def leading(self) -> tuple[int, ...]:
        """Dimensions that Paddle puts before the shape of a fetched tensor."""
        factors = [self.replicas, self.accumulation]
        if self.batches_per_step > 1:
            factors.append(self.batches_per_step)
        return tuple(factor for factor in factors if factor is not None)


def read(options: IpuStrategy) -> Plan:
    options.check_supported()
    accumulates = options["enable_gradient_accumulation"]
    replicates = options["enable_replicated_graphs"]
    seed = options["random_seed"]
    plan = Plan(
        training=options["is_training"],
        num_ipus=options["num_ipus"],
        micro_batch=options["micro_batch_size"],
        batches_per_step=options["batches_per_step"],
        accumulation=options["accumulation_factor"] if accumulates else None,
        replicas=options["replicated_graph_count"] if replicates else None,
        reduction=_REDUCTIONS[options["accumulation_and_replication_reduction_type"]],
        pipelined=options["enable_pipelining"],
        manual_shards=options["enable_manual_shard"],
        average_shards=options["need_avg_shard"],
        loss_scaling=options["loss_scaling"],
        pads_batches=options["enable_model_runtime_executor"] and options["timeout_ms"] != 0,
        random_seed=None if seed == _NO_SEED else seed,
    )
    if plan.num_ipus % (plan.replicas or 1):
        raise InvalidIpuPlacement(
            f"num_ipus={plan.num_ipus} is not a multiple of "
            f"replicated_graph_count={plan.replicas}.",
            cause="num_ipus counts the IPUs of all replicas together.",
            remedy="Set num_ipus to the IPUs of one replica times the number of replicas.",
        )
    return plan


def check_shards(plan: Plan, ops: list[Any]) -> None:
    """Operations must be on IPUs that each replica has."""
    if not plan.manual_shards or plan.average_shards:
        return
    for op in ops:
        index = op.desc.attr("ipu_index") if op.desc.has_attr("ipu_index") else 0
        if index >= plan.ipus_per_replica:
            raise InvalidIpuPlacement(
                f"The operation {op.type} is placed on IPU {index}, but a replica has "
                f"{plan.ipus_per_replica} (num_ipus={plan.num_ipus}, replicas="
                f"{plan.replicas or 1})."
            )


def check_pipeline(plan: Plan, stages: int) -> None:
    """Refuse a pipeline that a run can't fill. `stages` counts those of the forward part."""
    if not plan.pipelined:
        return
    option = "batches_per_step" if plan.accumulation is None else "accumulation_factor"
    depth = plan.batches_per_step if plan.accumulation is None else plan.accumulation
    needed = 2 * stages - 1 if plan.training else stages  # the last is both forward and backward
    if depth < needed:
        raise InvalidIpuOption(
            f"enable_pipelining with {option}={depth}: the pipeline has {needed} stages"
            + (f", {stages} forward and {stages - 1} backward." if plan.training else "."),
            cause="A pipeline needs a micro-batch for each of its stages before it empties again.",
            remedy=f"Raise {option} to at least {needed}, or leave enable_pipelining out.",
        )
