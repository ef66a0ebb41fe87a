"""Causal language models of transformers compute the same layer by layer; what is built otherwise is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from worker.models.huggingface import Unknown, decoder_layers, layers_of, parts_of


class LlamaLayer(nn.Module):
    """Built as those of transformers: rotary angles come from outside, and hidden states may come back in a tuple."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: Tensor, position_ids: Tensor, position_embeddings: tuple[Tensor, Tensor]) -> Any:
        cos, sin = position_embeddings
        return (hidden + self.linear(hidden * cos + hidden.roll(1, -1) * sin),)


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequency", torch.tensor([0.1, 0.2, 0.3, 0.4]), persistent=False)

    def forward(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None] * self.frequency
        return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


class Llama(nn.Module):
    def __init__(self, width: int = 4, vocabulary: int = 11) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, width)
        self.model.layers = nn.ModuleList(LlamaLayer(width) for _ in range(3))
        self.model.norm, self.model.rotary_emb = nn.LayerNorm(width), Rotary()
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.model.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1])[None]
        for layer in self.model.layers:
            (hidden,) = layer(hidden, positions, self.model.rotary_emb(hidden, positions))
        scores: Tensor = self.lm_head(self.model.norm(hidden))
        return scores


def test_layers_of_a_llama_compute_what_the_whole_computes() -> None:
    whole = Llama()
    with torch.device("meta"):
        skeleton = Llama()
    layers = [build() for build in layers_of(skeleton, Rotary).values()]
    layers[0].tokens.load_state_dict(whole.model.embed_tokens.state_dict())
    for mine, theirs in zip(layers[1:-1], whole.model.layers, strict=True):
        mine.layer.load_state_dict(theirs.state_dict())
    layers[-1].norm.load_state_dict(whole.model.norm.state_dict())
    layers[-1].head.load_state_dict(whole.lm_head.state_dict())
    tokens = torch.randint(0, 11, (2, 7))
    assert torch.equal(nn.Sequential(*layers)(tokens), whole(tokens))
    assert not any("frequency" in name for layer in layers for name, _ in layer.named_buffers())


def test_every_layer_is_initialised_when_it_is_built() -> None:
    with torch.device("meta"):
        skeleton = Llama()
    for build in layers_of(skeleton, Rotary).values():
        assert all(torch.isfinite(parameter).all() for parameter in build().parameters())


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(Unknown, match="Linear is built neither like Llama"):
        parts_of(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SimpleNamespace(model_type="gemma"), "'gemma' is none of"),
        (SimpleNamespace(model_type="mistral", sliding_window=4096), "sliding windows"),
    ],
)
def test_a_model_that_would_compute_something_else_is_refused(config: Any, words: str) -> None:
    with pytest.raises(Unknown, match=words):
        decoder_layers(config)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_real_model_computes_the_same_layer_by_layer(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if kind == "llama":
        config = transformers.LlamaConfig(
            vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            tie_word_embeddings=False,
        )  # fmt: skip
    else:
        config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=16)
    whole = transformers.AutoModelForCausalLM.from_config(config).eval()
    builders, ties = decoder_layers(config)
    layers = [build().eval() for build in builders.values()]
    parts = parts_of(whole)
    layers[0].tokens.load_state_dict(parts.embedding.state_dict())
    if parts.positions is not None:
        layers[0].positions.load_state_dict(parts.positions.state_dict())
    for mine, theirs in zip(layers[1:-1], parts.layers, strict=True):
        mine.layer.load_state_dict(theirs.state_dict())
    layers[-1].norm.load_state_dict(parts.norm.state_dict())
    layers[-1].head.load_state_dict(parts.head.state_dict())
    tokens = torch.randint(0, 50, (2, 9))
    assert torch.allclose(nn.Sequential(*layers)(tokens), whole(tokens).logits, atol=1e-5)
    assert bool(ties) == config.tie_word_embeddings
