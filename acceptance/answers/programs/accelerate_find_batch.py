"""accelerate's find_executable_batch_size around a training function: it starts too high and halves."""
import torch
import torchvision
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size


def main():
    accelerator = Accelerator()

    @find_executable_batch_size(starting_batch_size=256)
    def inner_training_loop(batch_size):
        accelerator.free_memory()
        accelerator.print(f"Trying batch size: {batch_size}")
        data = torch.utils.data.TensorDataset(torch.rand(512, 3, 64, 64), torch.randint(0, 10, (512,)))
        loader = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True)
        model = torchvision.models.resnet34(num_classes=10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print("done", batch_size)

    inner_training_loop()


if __name__ == "__main__":
    main()
