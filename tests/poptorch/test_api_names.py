"""Every public function and class of PopTorch 3.4 is there, and takes what it took.

Options, their groups and the enumerations: `test_options_table`. Optimisers: `test_optim_classes`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import poptorch

FUNCTIONS = """
    load(filename,edit_opts_fn=None) trainingModel(model,options=None,optimizer=None)
    inferenceModel(model,options=None) ipuHardwareIsAvailable(num_ipus=1) ipuHardwareVersion()
    registerCustomArgParser(arg_data_type,arg_parser) poptorchAtExit()
    registerGeometricCustomArgParsers() isRunningOnIpu() registerPreCompileHook(hook)
    registerPostCompileHook(hook)
    ctc_beam_search_decoder(probs,lengths,blank=0,beam_width=100,top_paths=1)
    for_loop(count,body,inputs) cond(condition,then_body,then_inps,else_body,else_inps)
    nop(tensor) dynamic_slice(tensor,dim,start,size,step) dynamic_update(input,src,dim,start,size)
    recomputationCheckpoint(*tensors) serializedMatMul(lhs,rhs,mode,factor=0,keep_precision=False)
    set_available_memory(tensor,available_memory_proportion)
    set_overlap_for_input(input_tensors,mode) set_overlap_for_output(output_tensors,mode)
    removeBlocks(module) BeginBlock(layer_to_call,user_id=None,ipu_id=None)
    BlockFunction(user_id=None,ipu_id=None) identity_loss(x,reduction)
    custom_op(inputs,name,domain,domain_version,example_outputs,attributes=None)
    fps(src,ptr,ratio=0.5,random_start=False) nearest(x,y,batch_x=None,batch_y=None)
    """
#: Those that take more here, or of whose parameters only the names of the first are promised.
NAMES = """
    createPoptorchError setLogLevel importPoptorchMetadataFromFile ipu_print_tensor module_repr print
    Error RecoverableError UnrecoverableError ICustomArgParser PoplarExecutor Options
    TensorLocationSettings Attribute Stage Phase PipelinedExecution ShardedExecution
    ParallelPhasedExecution SerialPhasedExecution DataLoader AsynchronousDataAccessor
    Block CPU MultiConv NameScope optim.VariableAttributes optim.SGD optim.Adam optim.AdamW
    optim.RMSprop optim.LAMB profiling.Channel testing.allclose
    MeanReductionStrategy DataLoaderMode SharingStrategy OutputMode ConnectionType
    HalfFloatCastingBehavior ReductionType SyncPattern MatMulSerializationMode Liveness OverlapMode
    AutoStage MultiConvPlanType CommGroupType VariableRetrievalMode
    """
METHODS = {
    "PoplarExecutor": """
        load_state_dict(state_dict,strict=True) getTensorNames() getAnchoredTensor(short_name)
        copyWeightsToHostIfNeeded() copyWeightsToHost() copyWeightsToDevice()
        copyNamedBuffersToDevice() setOptimizer(optimizer) compile(*args,**kwargs)
        loadExecutable(filename) save(filename,export_model=True,save_rng_state=True)
        compileAndExport(filename,*args,export_model=True,**kwargs) cycleCount()
        compilationTime() __call__(*args,**kwargs) getPerfCounters() getHostIpuLatency()
        getComputeLatency() getIpuHostLatency() getLatency() destroy() isAttachedToDevice()
        isCompiled() detachFromDevice() attachToDevice()""",
    "Stage": "ipu(ipu)",
    "Phase": "stage(idx) ipus(*ipus)",
    "ParallelPhasedExecution": "sendTensorsOffChipAfterFwd(off_chip=True) phase(phase)",
    "SerialPhasedExecution": "setTensorsLiveness(liveness) phase(phase)",
    "DataLoader": "terminate()",
    "AsynchronousDataAccessor": "terminate()",
    "ICustomArgParser": "yieldTensors(struct) reconstruct(original_structure,tensor_iterator)",
    "Block": "useAutoId() start(user_id=None,ipu_id=None)",
    "CPU": "execute() registerPersistentData() __call__(*input,**kwargs)",
    "MultiConv": """
        availableMemoryProportions(value) partialsTypes(value) enableConvDithering(value)
        planType(value) perConvReservedTiles(value) cycleBackOff(value)""",
    "profiling.Channel": "instrument(obj,*methods) tracepoint(name)",
}
PROPERTIES = {
    "PoplarExecutor": "model options rng_state",
    "Stage": "blocks",
    "DataLoader": "combinedBatchSize options",
}


def found(path: str) -> Any:
    thing: Any = poptorch
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


def calls(listed: str) -> Iterator[tuple[str, str]]:
    for each in listed.split():
        name, _, arguments = each.partition("(")
        yield name, arguments.removesuffix(")")


def taken(function: Any) -> str:
    """The parameters of a function as these lists write them, without `self`."""
    shown = []
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        default = parameter.default
        text = "" if default is inspect.Parameter.empty else f"={default}"
        shown.append(marks.get(parameter.kind, "") + parameter.name + text)
    return ",".join(shown)


@pytest.mark.parametrize(("name", "arguments"), list(calls(FUNCTIONS)))
def test_a_function_takes_what_it_took_in_poptorch(name: str, arguments: str) -> None:
    assert taken(found(name)) == arguments


@pytest.mark.parametrize("name", NAMES.split())
def test_a_name_is_there(name: str) -> None:
    assert callable(found(name))


@pytest.mark.parametrize(
    ("owner", "name", "arguments"),
    [(owner, *call) for owner, listed in METHODS.items() for call in calls(listed)],
)
def test_a_method_takes_what_it_took_in_poptorch(owner: str, name: str, arguments: str) -> None:
    assert taken(getattr(found(owner), name)) == arguments


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner, names in PROPERTIES.items() for name in names.split()],
)
def test_a_property_is_there(owner: str, name: str) -> None:
    assert isinstance(inspect.getattr_static(found(owner), name), property)


def test_a_trained_model_has_the_methods_of_its_executor_and_its_weights_can_be_grouped() -> None:
    from torch import nn

    model = nn.Linear(2, 2)
    executor = poptorch.trainingModel(model, poptorch.Options())
    assert callable(model.copyWeightsToHostIfNeeded)
    assert callable(model.destroy)
    wanted = "comm_group_type,shards,variable_retrieval_mode"
    assert taken(executor.weight.replicaGrouping) == wanted
