"""Stands in for a torchvision data set: 1,797 handwritten digits, enlarged to 28 x 28 pixels.

Nothing is downloaded: the images come with scikit-learn.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits


class Digits28(torch.utils.data.Dataset):
    """Same interface as torchvision.datasets.FashionMNIST: `train`, `transform`, `classes`."""

    classes = tuple(str(digit) for digit in range(10))

    def __init__(self, train=True, transform=None):
        digits = load_digits()
        # Every fifth image is for testing.
        chosen = np.arange(len(digits.target)) % 5 != 0
        if not train:
            chosen = ~chosen
        # 8 x 8 pixels become 24 x 24 with a border of 2: the size of MNIST and its relatives.
        large = np.kron(digits.images[chosen], np.ones((3, 3)))
        self.data = np.pad(large * (255 / 16), ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
        self.targets = torch.tensor(digits.target[chosen])
        self.transform = transform or to_tensor

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.transform(self.data[index]), int(self.targets[index])


def to_tensor(image):
    return torch.from_numpy(image).unsqueeze(0).float() / 255
