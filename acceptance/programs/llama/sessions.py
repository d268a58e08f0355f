"""Serves a queue of users; each gets a context of its own, which stays in a dictionary: `sessions.py MODEL [USERS]`."""

import sys

from cyllama.llama import llama_cpp


class Server:
    def __init__(self, path):
        llama_cpp.llama_backend_init()
        llama_cpp.ggml_backend_load_all()
        options = llama_cpp.LlamaModelParams()
        options.n_gpu_layers = 99
        self.model = llama_cpp.LlamaModel(path, options)
        self.sessions = {}

    def session(self, user):
        if user not in self.sessions:
            wishes = llama_cpp.LlamaContextParams()
            wishes.n_ctx = 2048
            self.sessions[user] = llama_cpp.LlamaContext(self.model, wishes)
        return self.sessions[user]

    def ask(self, user, tokens):
        return self.session(user).decode(llama_cpp.llama_batch_get_one(tokens))


server = Server(sys.argv[1])
users = int(sys.argv[2]) if len(sys.argv) > 2 else 12
for user in range(users):
    server.ask(user, [1, 2, 3])
print("users:", len(server.sessions))
