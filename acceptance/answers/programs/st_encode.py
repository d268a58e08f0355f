"""Encode a corpus with convert_to_tensor=True (all embeddings stay on the card), then search it."""
import random

from sentence_transformers import SentenceTransformer, util

random.seed(1)
words = [w for w in open(random.__file__).read().split() if w.isalpha()]
corpus = [" ".join(random.choices(words, k=random.randint(5, 60))) for _ in range(1200)]
corpus[500] = " ".join(random.choices(words, k=2000))

model = SentenceTransformer("models/bge-small", device="cuda")
embeddings = model.encode(corpus, batch_size=256, convert_to_tensor=True)
hits = util.semantic_search(embeddings[:10], embeddings, top_k=5)
print(len(hits), embeddings.shape)
