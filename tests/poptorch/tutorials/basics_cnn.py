"""First steps: a classifier of 28 x 28 images, trained, saved and evaluated."""

import torch
import torch.nn as nn
from digits28 import Digits28, to_tensor
from sklearn.metrics import accuracy_score, confusion_matrix
from tqdm import tqdm

import poptorch

learning_rate = 0.02
batch_size = 16
test_batch_size = 60
epochs = 5


def transform(image):
    return (to_tensor(image) - 0.5) / 0.5


train_dataset = Digits28(train=True, transform=transform)
test_dataset = Digits28(train=False, transform=transform)
classes = Digits28.classes


class ClassificationModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 12, 5)
        self.norm = nn.GroupNorm(3, 12)
        self.fc1 = nn.Linear(12 * 4 * 4, 100)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(100, len(classes))
        self.log_softmax = nn.LogSoftmax(dim=1)
        self.loss = nn.NLLLoss()

    def forward(self, x, labels=None):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.relu(self.conv2(x)))
        x = torch.flatten(self.pool(x), start_dim=1)
        x = self.relu(self.fc1(x))
        x = self.log_softmax(self.fc2(x))
        if self.training:
            return x, self.loss(x, labels)
        return x


torch.manual_seed(0)
model = ClassificationModel()
model.train()

opts = poptorch.Options()
opts.deviceIterations(5)
opts.randomSeed(7)

train_dataloader = poptorch.DataLoader(
    opts, train_dataset, batch_size=batch_size, shuffle=True, num_workers=20
)

optimizer = poptorch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
poptorch_model = poptorch.trainingModel(model, options=opts, optimizer=optimizer)

for epoch in tqdm(range(epochs), desc="epochs"):
    total_loss = 0.0
    for data, labels in tqdm(train_dataloader, desc="batches", leave=False):
        output, loss = poptorch_model(data, labels)
        total_loss += loss.item()
    print(f"Epoch {epoch}: loss {total_loss / len(train_dataloader):.4f}")

poptorch_model.detachFromDevice()
torch.save(model.state_dict(), "classifier.pth")

model = ClassificationModel()
model.load_state_dict(torch.load("classifier.pth"))
model = model.eval()

opts = poptorch.Options().deviceIterations(2)
test_dataloader = poptorch.DataLoader(
    opts, test_dataset, batch_size=test_batch_size, num_workers=10
)
poptorch_model_inf = poptorch.inferenceModel(model, options=opts)

predictions, targets = [], []
for data, labels in test_dataloader:
    output = poptorch_model_inf(data)
    predictions += torch.argmax(output, dim=-1).tolist()
    targets += labels.tolist()
poptorch_model_inf.detachFromDevice()

print(confusion_matrix(targets, predictions))
print(f"Accuracy on the test set: {accuracy_score(targets, predictions) * 100:.2f}%")
