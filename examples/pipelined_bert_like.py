"""Trains a small BERT-like transformer as a pipeline over four IPUs.

Every sequence counts in steps of its own, some places are masked, and the model learns to fill them
in. The sequences are made up from a fixed seed.

    python examples/pipelined_bert_like.py
"""

import torch
from torch import nn

import poptorch

VOCABULARY, MASK, LENGTH, HIDDEN, LAYERS = 32, 32, 16, 64, 4
STEPS = 140
UNMASKED = -100


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY + 1, HIDDEN)
        self.position = nn.Embedding(LENGTH, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens):
        # Made inside `forward`, so it is a constant on the device and not one more input.
        positions = torch.arange(LENGTH, device=tokens.device)
        return self.norm(self.token(tokens) + self.position(positions))


def encoder_layer():
    return nn.TransformerEncoderLayer(HIDDEN, 4, 2 * HIDDEN, 0.0, "gelu", batch_first=True)


class BertLike(nn.Module):
    def __init__(self):
        super().__init__()
        # From the first op of a block on, everything belongs to it, until the next block begins.
        self.embedding = poptorch.BeginBlock(Embedding(), "embedding")
        layers = [poptorch.BeginBlock(encoder_layer(), f"layer{i}") for i in range(LAYERS)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens, labels=None):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        scores = self.head(hidden)
        if labels is None:
            return scores.argmax(dim=-1)
        # Leaves out what is UNMASKED by itself: -100 is its default.
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def counting_sequences(count, seed):
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(VOCABULARY, (count, 1), generator=random)
    stride = torch.randint(1, 4, (count, 1), generator=random)
    truth = (start + stride * torch.arange(LENGTH)) % VOCABULARY
    # The same number of masks in each sequence: no micro-batch is left without a loss.
    places = torch.rand(count, LENGTH, generator=random).argsort(dim=1)[:, : LENGTH // 4]
    masked = torch.zeros(count, LENGTH, dtype=torch.bool).scatter(1, places, True)
    tokens = truth.masked_fill(masked, MASK)
    return torch.utils.data.TensorDataset(tokens, truth.masked_fill(~masked, UNMASKED))


def pipeline():
    # The embedding shares an IPU with the first layer; the head runs where the last layer does.
    return poptorch.PipelinedExecution(
        poptorch.Stage("embedding", "layer0"),
        *(poptorch.Stage(f"layer{index}") for index in range(1, LAYERS)),
    )


def main():
    torch.manual_seed(0)
    model = BertLike()

    options = poptorch.Options().setExecutionStrategy(pipeline()).randomSeed(0)
    # A pipeline of n stages needs 2n - 1 micro-batches per update to fill and drain; 8 it is.
    options.Training.gradientAccumulation(2 * LAYERS)
    # The loss of all micro-batches, not only of the last one.
    options.outputMode(poptorch.OutputMode.All)
    data = counting_sequences(STEPS * 2 * LAYERS * 8, seed=1)
    loader = poptorch.DataLoader(options, data, batch_size=8)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.004, weight_decay=0.01)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = [training(tokens, labels).mean().item() for tokens, labels in loader]
    for step in range(0, len(losses), 20):
        print(f"step {step + 1}: loss {losses[step]:.3f}")
    training.detachFromDevice()

    # For inference, device iterations keep the pipeline full: at least one per stage.
    options = poptorch.Options().setExecutionStrategy(pipeline()).deviceIterations(LAYERS)
    unseen = counting_sequences(256, seed=2)
    inference = poptorch.inferenceModel(model.eval(), options)
    right = total = 0
    for tokens, labels in poptorch.DataLoader(options, unseen, batch_size=16):
        masked = labels != UNMASKED
        right += (inference(tokens)[masked] == labels[masked]).sum().item()
        total += masked.sum().item()
    print(f"loss: {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    print(f"masked tokens filled in correctly: {right / total:.1%} of {total}")


if __name__ == "__main__":
    main()
