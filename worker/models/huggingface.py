"""Decoder models of Hugging Face's transformers, layer by layer: embedding, each decoder layer, norm with head.

Each layer is built alone from the model's configuration; of the rest there is only a skeleton without memory. Layers
pass the hidden states and nothing else: rotary angles are computed anew in each, from the positions. Attention masks
are causal; padding is not masked, so give rows of one length.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Builder = Callable[[], nn.Module]


KNOWN = ("llama", "mistral", "qwen2", "gpt2")
"""Model types whose whole is nothing but embedding, layers, norm and head; others scale or mask in between."""


class Unknown(TypeError):
    """The model is none that can be taken apart; the message says what was looked for."""


@dataclass(frozen=True)
class Parts:
    """Of a model: submodules by what they do. positions: a table of learned ones (GPT-2); rotary: of angles (Llama)."""

    embedding: nn.Module
    layers: nn.ModuleList
    norm: nn.Module
    head: nn.Module
    positions: nn.Module | None
    rotary: nn.Module | None
    dropout: nn.Module | None = None


def parts_of(model: nn.Module) -> Parts:
    """Of models built like Llama or like GPT-2.

    Raises:
        Unknown: it is neither.
    """
    body, head = getattr(model, "model", None), getattr(model, "lm_head", None)
    if head is not None and all(hasattr(body, name) for name in ("embed_tokens", "layers", "norm")):
        assert body is not None
        return Parts(body.embed_tokens, body.layers, body.norm, head, None, getattr(body, "rotary_emb", None))
    body = getattr(model, "transformer", None)
    if head is not None and all(hasattr(body, name) for name in ("wte", "wpe", "h", "ln_f")):
        assert body is not None
        return Parts(body.wte, body.h, body.ln_f, head, body.wpe, None, getattr(body, "drop", None))
    raise Unknown(
        f"{type(model).__name__} is built neither like Llama (model.embed_tokens, model.layers, model.norm, lm_head) "
        "nor like GPT-2 (transformer.wte, .wpe, .h, .ln_f, lm_head); write its layers as modules of your own"
    )


class Embedding(nn.Module):
    """Tokens [batch, time] -> hidden states."""

    def __init__(self, tokens: nn.Module, positions: nn.Module | None, dropout: nn.Module | None) -> None:
        super().__init__()
        self.tokens, self.positions, self.dropout = tokens, positions, dropout

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.tokens(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return hidden if self.dropout is None else self.dropout(hidden)


class Decoder(nn.Module):
    """One decoder layer. make_rotary: builds what gives it rotary angles, which has no parameters; None without."""

    def __init__(self, layer: nn.Module, make_rotary: Callable[[], nn.Module] | None) -> None:
        super().__init__()
        self.layer = layer
        self._rotary = [make_rotary()] if make_rotary is not None else []  # a list: its buffers are nobody's state

    def forward(self, hidden: Tensor) -> Tensor:
        more: dict[str, Any] = {}
        for rotary in self._rotary:
            positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            more = {"position_ids": positions, "position_embeddings": rotary.to(hidden.device)(hidden, positions)}
        out = self.layer(hidden, **more)
        leaving: Tensor = out[0] if isinstance(out, tuple) else out
        return leaving


class Head(nn.Module):
    """Hidden states -> one score a token of the vocabulary."""

    def __init__(self, norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.norm, self.head = norm, head

    def forward(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(hidden))
        return scores


def layers_of(skeleton: nn.Module, rotary: Callable[[], nn.Module] | None) -> dict[str, Builder]:
    """The layers by name, for PipelineJob(layers=...), from a model on the meta device.

    rotary: builds the module for rotary angles afresh, since a skeleton's has no values.
    """
    parts = parts_of(skeleton)
    initialise: Any = getattr(skeleton, "_init_weights", _reset)

    def real(module: nn.Module) -> nn.Module:
        made = copy.deepcopy(module).to_empty(device="cpu")
        for child in made.modules():
            initialise(child)
        return made

    def embedding() -> nn.Module:
        positions = real(parts.positions) if parts.positions is not None else None
        return Embedding(real(parts.embedding), positions, copy.deepcopy(parts.dropout))

    def decoder(layer: nn.Module) -> nn.Module:
        return Decoder(real(layer), rotary)

    found: dict[str, Builder] = {"embedding": embedding}
    for index, layer in enumerate(parts.layers):
        found[f"layer{index}"] = partial(decoder, layer)
    found["head"] = lambda: Head(real(parts.norm), real(parts.head))
    return found


def decoder_layers(config: Any) -> tuple[dict[str, Builder], list[list[str]]]:
    """Layers and ties of a causal language model with random weights, from its transformers configuration.

    Raises:
        ModuleNotFoundError: transformers is not installed. Unknown: the model cannot be taken apart, or its whole does
            something between the layers that they would not.
    """
    if config.model_type not in KNOWN:
        raise Unknown(f"{config.model_type!r} is none of {', '.join(KNOWN)}; write its layers as modules of your own")
    if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
        raise Unknown("sliding windows of attention need masks that layers do not pass; set sliding_window=None")
    from transformers import AutoModelForCausalLM

    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    parts = parts_of(skeleton)
    make_rotary = partial(type(parts.rotary), config=config) if parts.rotary is not None else None
    tied = bool(getattr(config, "tie_word_embeddings", False))
    return layers_of(skeleton, make_rotary), [["embedding/tokens.weight", "head/head.weight"]] if tied else []


def _reset(module: nn.Module) -> None:
    """As torch initialises its own modules."""
    reset: Any = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()


def causal_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats a token; targets of -100 do not count."""
    return F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())
