"""Trains on batches that come in one of many ways: `loading.py KIND [--workers N] [--start METHOD]`.

Each way gives the same batches, first small ones and then large ones, so that the same peak is the truth of them all. It
is that of `loading.py plain --workers 0`. Kinds that end with `raises` end by an error of the program's own.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import io
import itertools
import multiprocessing
import os
import queue
import tarfile
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import (
    BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler, TensorDataset,
    WeightedRandomSampler, get_worker_info,
)

from common import print_peaks

SIZES = (32, 192)
"""Edges of images: a batch has 49,152 numbers, and 1,769,472."""
BATCH = 16
BATCHES = 8


class Images(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        return torch.randn(3, self.size, self.size), index % 10


class Stream(IterableDataset):
    def __init__(self, size, whole=False):
        self.size = size
        self.whole = whole

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        images = Images(self.size)
        if self.whole:
            for _ in range(first, BATCHES, step):
                yield stacked([images[index] for index in range(BATCH)])
        else:
            for index in range(first, len(images), step):
                yield images[index]


class Failing(Images):
    def __getitem__(self, index):
        if index == 40:
            raise KeyError("sample 40 has no label")
        return super().__getitem__(index)


class Dying(Images):
    def __getitem__(self, index):
        if index == 40 and get_worker_info():
            os._exit(7)
        return super().__getitem__(index)


class Augmented(Images):
    """As with torchvision's transforms, which are modules."""

    def __init__(self, size):
        super().__init__(size)
        self.transform = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.ReflectionPad2d(4), Crop(size))

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return self.transform(image), label


class Crop(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, image):
        x, y = torch.randint(0, image.shape[-1] - self.size + 1, (2,)).tolist()
        return image[:, y : y + self.size, x : x + self.size]


class Buckets(Sampler):
    """Batches of its own."""

    def __iter__(self):
        order = torch.randperm(BATCH * BATCHES).tolist()
        return (sorted(order[at : at + BATCH]) for at in range(0, len(order), BATCH))

    def __len__(self):
        return BATCHES


class Backwards(Sampler):
    def __iter__(self):
        return iter(range(BATCH * BATCHES - 1, -1, -1))

    def __len__(self):
        return BATCH * BATCHES


@dataclasses.dataclass
class Sample:
    images: torch.Tensor
    labels: torch.Tensor
    names: list

    def pin_memory(self):
        self.images, self.labels = self.images.pin_memory(), self.labels.pin_memory()
        return self


Pair = collections.namedtuple("Pair", "images labels")


def stacked(samples):
    return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def as_dict(samples):
    images, labels = stacked(samples)
    return {"images": images, "labels": labels}


def as_lists(samples):
    return [image for image, _ in samples], [label for _, label in samples]


def nested(samples):
    images, labels = stacked(samples)
    return [{"inputs": (images,), "meta": {"labels": [labels]}}]


def as_object(samples):
    return Sample(*stacked(samples), [f"image-{label}.png" for _, label in samples])


def as_pair(samples):
    return Pair(*stacked(samples))


def with_names(samples):
    return (*stacked(samples), ["a name of some length " * 50 for _ in samples])


def as_arrays(samples):
    images, labels = stacked(samples)
    return images.numpy(), labels.numpy()


def collate_raises(samples):
    raise ValueError("boxes of different numbers cannot be stacked")


def tensors_of(batch):
    """Images and labels of a batch of any of these shapes."""
    if isinstance(batch, dict):
        return batch["images"], batch["labels"]
    if isinstance(batch, Sample):
        return batch.images, batch.labels
    if isinstance(batch[0], dict):
        return batch[0]["inputs"][0], batch[0]["meta"]["labels"][0]
    images, labels = batch[:2]
    if isinstance(images, (list, tuple)):
        return torch.stack(list(images)), torch.as_tensor(labels)
    return torch.as_tensor(images), torch.as_tensor(labels)


def seeded(number):
    torch.manual_seed(number)
    torch.set_num_threads(1)


def preprocess(size, number):
    """What a process of a pool does."""
    images = Images(size)
    return stacked([images[index] for index in range(number, number + BATCH)])


def as_numpy(size, number):
    images, labels = preprocess(size, number)
    return images.numpy(), labels.numpy()


def one_fails(size, number):
    images, labels = stacked([Failing(size)[8 * number + index] for index in range(BATCH)])
    return images.numpy(), labels.numpy()


def put_all(size, out):
    for number in range(BATCHES):
        out.put(preprocess(size, number))
    out.put(None)
    # A tensor in a queue is a file of the process that made it.
    out.close()
    out.join_thread()
    threading.Event().wait(2)


class Loaders:
    """The kinds: each method gives batches of images of one size."""

    def __init__(self, options):
        self.workers = options.workers
        self.start = options.start
        self.context = multiprocessing.get_context(options.start)

    def loader(self, data, **settings):
        settings = {"batch_size": BATCH, "num_workers": self.workers, **settings}
        if settings["num_workers"]:
            settings["multiprocessing_context"] = self.start
        return DataLoader(data, **settings)

    # -- collate functions ------------------------------------------------------------------------------------------

    def plain(self, size):
        return self.loader(Images(size), shuffle=True)

    def tensors(self, size):
        return self.loader(TensorDataset(torch.randn(BATCH * BATCHES, 3, size, size), torch.arange(BATCH * BATCHES) % 10))

    def own(self, size):
        return self.loader(Images(size), collate_fn=stacked)

    def dicts(self, size):
        return self.loader(Images(size), collate_fn=as_dict)

    def lists(self, size):
        return self.loader(Images(size), collate_fn=as_lists)

    def nested(self, size):
        return self.loader(Images(size), collate_fn=nested)

    def objects(self, size):
        return self.loader(Images(size), collate_fn=as_object)

    def named(self, size):
        return self.loader(Images(size), collate_fn=as_pair)

    def strings(self, size):
        return self.loader(Images(size), collate_fn=with_names)

    def arrays(self, size):
        return self.loader(Images(size), collate_fn=as_arrays)

    def partial(self, size):
        return self.loader(Images(size), collate_fn=functools.partial(map_all, as_pair))

    # -- settings ---------------------------------------------------------------------------------------------------

    def pinned(self, size):
        return self.loader(Images(size), collate_fn=stacked, pin_memory=True)

    def pinned_objects(self, size):
        return self.loader(Images(size), collate_fn=as_object, pin_memory=True)

    def persistent(self, size):
        loader = self.loader(Images(size), collate_fn=stacked, persistent_workers=self.workers > 0)
        for _ in range(3):
            yield from loader

    def prefetched(self, size):
        return self.loader(Images(size), collate_fn=stacked, prefetch_factor=4 if self.workers else None)

    def unordered(self, size):
        return self.loader(Images(size), collate_fn=stacked, in_order=False)

    def initialised(self, size):
        generator = torch.Generator().manual_seed(3)
        return self.loader(Images(size), collate_fn=stacked, worker_init_fn=seeded, generator=generator, shuffle=True)

    def file_system(self, size):
        torch.multiprocessing.set_sharing_strategy("file_system")
        return self.loader(Images(size), collate_fn=stacked)

    def modules(self, size):
        return self.loader(Augmented(size), collate_fn=stacked)

    # -- datasets and samplers --------------------------------------------------------------------------------------

    def iterable(self, size):
        return self.loader(Stream(size), collate_fn=stacked)

    def iterable_batches(self, size):
        return self.loader(Stream(size, whole=True), batch_size=None)

    def batches_by_sampler(self, size):
        batches = BatchSampler(SequentialSampler(range(BATCH * BATCHES)), BATCH, False)
        return self.loader(Batched(size), sampler=batches, batch_size=None)

    def own_batches(self, size):
        # `batch_size` and `batch_sampler` exclude each other.
        return self.loader(Images(size), batch_sampler=Buckets(), batch_size=1, collate_fn=stacked)

    def own_order(self, size):
        return self.loader(Images(size), sampler=Backwards(), collate_fn=stacked)

    def weighted(self, size):
        sampler = WeightedRandomSampler(torch.ones(BATCH * BATCHES), BATCH * BATCHES)
        return self.loader(Images(size), sampler=sampler, collate_fn=stacked)

    def random_batches(self, size):
        sampler = BatchSampler(RandomSampler(range(BATCH * BATCHES)), BATCH, True)
        return self.loader(Images(size), batch_sampler=sampler, batch_size=1)

    # -- how it is gone through -------------------------------------------------------------------------------------

    def remade(self, size):
        for _ in range(3):
            yield from self.own(size)

    def zipped(self, size):
        for (images, _), (_, labels) in zip(self.own(size), self.dicts_as_pairs(size)):
            yield images, labels

    def dicts_as_pairs(self, size):
        for batch in self.dicts(size):
            yield batch["images"], batch["labels"]

    def cycled(self, size):
        return itertools.islice(itertools.cycle(self.own(size)), 2 * BATCHES)

    def by_next(self, size):
        batches = iter(self.own(size))
        while True:
            try:
                yield next(batches)
            except StopIteration:
                return

    def in_a_thread(self, size):
        """The batches of workers, put into a queue by a thread."""
        found = queue.Queue(2)

        def fill():
            for batch in self.own(size):
                found.put(batch)
            found.put(None)

        threading.Thread(target=fill, daemon=True).start()
        yield from iter(found.get, None)

    # -- without a DataLoader -----------------------------------------------------------------------------------------

    def pool(self, size):
        with self.context.Pool(max(1, self.workers)) as pool:
            yield from pool.imap(functools.partial(as_numpy, size), range(BATCHES))

    def torch_pool(self, size):
        with torch.multiprocessing.get_context(self.start).Pool(max(1, self.workers)) as pool:
            yield from pool.imap_unordered(functools.partial(preprocess, size), range(BATCHES))

    def executor(self, size):
        with concurrent.futures.ProcessPoolExecutor(max(1, self.workers), mp_context=self.context) as pool:
            yield from pool.map(functools.partial(as_numpy, size), range(BATCHES))

    def torch_executor(self, size):
        context = torch.multiprocessing.get_context(self.start)
        with concurrent.futures.ProcessPoolExecutor(max(1, self.workers), mp_context=context) as pool:
            yield from pool.map(functools.partial(preprocess, size), range(BATCHES))

    def process(self, size):
        context = torch.multiprocessing.get_context(self.start)
        found = context.Queue(4)
        worker = context.Process(target=put_all, args=(size, found), daemon=True)
        worker.start()
        yield from iter(found.get, None)
        worker.join()

    def threads(self, size):
        with concurrent.futures.ThreadPoolExecutor(max(1, self.workers)) as pool:
            yield from pool.map(functools.partial(preprocess, size), range(BATCHES))

    # -- libraries --------------------------------------------------------------------------------------------------

    def torchdata_nodes(self, size):
        from torchdata import nodes

        source = nodes.SamplerWrapper(SequentialSampler(range(BATCH * BATCHES)))
        mapped = nodes.ParallelMapper(
            source, Images(size).__getitem__, num_workers=max(1, self.workers), method="process",
            multiprocessing_context=self.start,
        )
        return nodes.Loader(nodes.Prefetcher(nodes.Mapper(nodes.Batcher(mapped, BATCH), stacked), 2))

    def stateful(self, size):
        from torchdata.stateful_dataloader import StatefulDataLoader

        context = {"multiprocessing_context": self.start} if self.workers else {}
        return StatefulDataLoader(
            Images(size), batch_size=BATCH, num_workers=self.workers, collate_fn=stacked, **context
        )

    def webdataset(self, size):
        import webdataset

        folder = tempfile.mkdtemp()
        for shard in range(2):
            with tarfile.open(os.path.join(folder, f"images-{shard}.tar"), "w") as tar:
                for number in range(BATCH * BATCHES // 2):
                    saved = io.BytesIO()
                    torch.save(torch.randn(3, size, size), saved)
                    for end, data in (("pth", saved.getvalue()), ("cls", str(number % 10).encode())):
                        entry = tarfile.TarInfo(f"{shard}-{number}.{end}")
                        entry.size = len(data)
                        tar.addfile(entry, io.BytesIO(data))
        data = webdataset.WebDataset(os.path.join(folder, "images-{0..1}.tar"), shardshuffle=False)
        data = data.decode().to_tuple("pth", "cls").batched(BATCH, collation_fn=stacked)
        context = {"multiprocessing_context": self.start} if self.workers else {}
        return webdataset.WebLoader(data, batch_size=None, num_workers=self.workers, **context)

    def hugging_face(self, size):
        return self.loader(rows(size).with_format("torch"))

    def hugging_face_stream(self, size):
        return self.loader(rows(size).to_iterable_dataset(num_shards=2).with_format("torch"))

    # -- errors of the program's ---------------------------------------------------------------------------------------

    def worker_raises(self, size):
        return self.loader(Failing(size), collate_fn=stacked)

    def collate_raises(self, size):
        return self.loader(Images(size), collate_fn=collate_raises)

    def worker_dies_raises(self, size):
        return self.loader(Dying(size), collate_fn=stacked)

    def pool_raises(self, size):
        with self.context.Pool(2) as pool:
            yield from pool.imap(functools.partial(one_fails, size), range(BATCHES))


class Batched(Images):
    """Takes the numbers of a whole batch."""

    def __getitem__(self, numbers):
        return stacked([super(Batched, self).__getitem__(number) for number in numbers])


def map_all(function, samples):
    return function(samples)


def rows(size):
    import datasets
    import numpy

    shape = datasets.Array3D((3, size, size), "float32")
    features = datasets.Features({"images": shape, "labels": datasets.Value("int64")})
    images = numpy.random.randn(BATCH * BATCHES, 3, size, size).astype("float32")
    labels = [number % 10 for number in range(BATCH * BATCHES)]
    return datasets.Dataset.from_dict({"images": images, "labels": labels}, features=features)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[name for name in vars(Loaders) if not name.startswith("_")])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start", choices=["fork", "spawn", "forkserver"], default="fork")
    options = parser.parse_args()
    loaders = Loaders(options)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for size in SIZES:
        for batch in getattr(loaders, options.kind)(size):
            images, labels = tensors_of(batch)
            assert images.shape == (BATCH, 3, size, size), images.shape
            loss = nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print_peaks()


if __name__ == "__main__":
    main()
