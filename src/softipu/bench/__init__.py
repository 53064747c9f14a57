"""Measuring: the CNN inference harness, the benchmark runner, plots. Imports no framework.

For programs that want the harness's models without its command:

- `softipu.bench.options.Options(model="resnet50", ...)`; `configs.for_config("resnet50", ...)`
- `softipu.bench.models.build_model(options)`, `models.build("resnet50", ...)`: a torch module
- `softipu.bench.models.input_shape("resnet50")`: (3, 224, 224)
- `softipu.bench.harness.inference_executor(options)`: a `poptorch.PoplarExecutor` and an example
  input, a whole host batch, to call, compile or export it with
- `softipu.bench.harness.poptorch_options(options)`: the `poptorch.Options` of that executor
- `softipu.bench.vision.torchvision()`: torchvision, also beside a torch it wasn't built for
"""
