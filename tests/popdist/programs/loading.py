"""An instance that prints which samples PopTorch's data loader gives to it."""

import popdist
import popdist.poptorch
import poptorch


def main() -> None:
    popdist.init()
    options = popdist.poptorch.Options()
    options.randomSeed(5)
    loader = poptorch.DataLoader(options, list(range(32)), batch_size=2, shuffle=True)
    for batch in loader:
        for sample in batch.tolist():
            print(sample, flush=True)


main()
