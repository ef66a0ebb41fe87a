"""Analytic profiles of well-known models: times from floating-point operations and bytes moved, sizes from shapes.

A layer's time is its work over the device kind's measured rates plus a constant for its kernels, so it is affine in the
micro-batch size. Parameters, activations and boundaries are 2 bytes an element (half precision with float32 state).
"""

from collections.abc import Callable
from dataclasses import dataclass

from policies.model.profile import LayerProfile, ModelProfile

ELEMENT = 2


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device kind reaches in practice: operations and bytes a second, and a layer's least seconds.

    The defaults are of an A100 at half precision, at about 45% of its peak.
    """

    flops_per_s: float = 1.4e14
    memory_bytes_per_s: float = 1.3e12
    layer_s: float = 3e-5


@dataclass(frozen=True, slots=True)
class Work:
    """One layer for one sample. Multiply-adds of products with weights and without; elements.

    kept: elements that the backward pass keeps.
    """

    name: str
    weight_macs: float
    other_macs: float
    parameters: float
    output: float
    kept: float
    atomic_with_next: bool = False

    def profile(self, size: int, rates: Rates) -> LayerProfile:
        weights = self.weight_macs * 2 * size / rates.flops_per_s
        other = self.other_macs * 2 * size / rates.flops_per_s
        moved = (self.parameters + (self.kept + self.output) * size) * ELEMENT / rates.memory_bytes_per_s
        return LayerProfile(
            self.name,
            forward_s=weights + other + moved + rates.layer_s,
            backward_input_s=weights + 2 * other + moved + rates.layer_s,
            backward_weight_s=weights + (moved if self.parameters else 0.0) + rates.layer_s,
            output_bytes=round(self.output * size * ELEMENT),
            activation_bytes=round(self.kept * size * ELEMENT),
            parameter_bytes=round(self.parameters * ELEMENT),
            atomic_with_next=self.atomic_with_next,
        )


def family(name: str, size: int, rates: Rates | None = None, device_kind: str = "gpu") -> ModelProfile:
    """The analytic profile of a built-in model at a micro-batch size.

    Raises:
        ValueError: no such model.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown model {name!r}; choose one of {', '.join(FAMILIES)}")
    layers = tuple(work.profile(size, rates or Rates()) for work in FAMILIES[name]())
    return ModelProfile(name, size, device_kind, layers)


# --- transformers -------------------------------------------------------------------------------------------


def gpt(layers: int, width: int, tokens: int = 1024, vocabulary: int = 50257) -> list[Work]:
    """GPT-2 and BERT blocks: attention and a two-matrix MLP four times as wide. Kept: 34 bytes a token and channel
    (Korthikanti et al., 2022, with fused attention)."""
    work = [Work("embedding", 0, 0, (vocabulary + tokens) * width, tokens * width, tokens)]
    for index in range(layers):
        work += _attention(index, width, tokens, kept=6.5 * tokens * width)
        mlp = 8 * width * width
        work.append(Work(f"mlp{index}", mlp * tokens, 0, mlp + 7 * width, tokens * width, 10.5 * tokens * width))
    return [*work, Work("head", vocabulary * width * tokens, 0, 0, tokens, tokens * (width + vocabulary))]


def llama(layers: int, width: int, hidden: int, tokens: int = 2048, vocabulary: int = 32000) -> list[Work]:
    """Llama blocks: attention and a gated MLP of three matrices; embedding and head are two matrices."""
    work = [Work("embedding", 0, 0, vocabulary * width, tokens * width, tokens)]
    for index in range(layers):
        work += _attention(index, width, tokens, kept=6 * tokens * width)
        kept = tokens * (2 * width + 3 * hidden)
        work.append(Work(f"mlp{index}", 3 * width * hidden * tokens, 0, 3 * width * hidden, tokens * width, kept))
    head = vocabulary * width
    return [*work, Work("head", head * tokens, 0, head, tokens, tokens * (width + vocabulary))]


def _attention(index: int, width: int, tokens: int, kept: float) -> list[Work]:
    """Four projections and the scores; it stays with its MLP, between them only the residual stream would cross."""
    weights, scores = 4 * width * width, tokens * width
    name = f"attention{index}"
    return [Work(name, weights * tokens, scores * tokens, weights + 4 * width, tokens * width, kept, True)]


# --- convolutional networks ---------------------------------------------------------------------------------


def vgg16(side: int = 224) -> list[Work]:
    """13 convolutions, 5 poolings, 3 linear layers, with their activations as layers of their own."""
    work: list[Work] = []
    channels, index = 3, 0
    for block in ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)):
        for out in block:
            size = out * side * side
            macs = 9 * channels * size
            work.append(Work(f"conv{index}", macs, 0, 9 * channels * out + out, size, channels * side * side))
            work.append(Work(f"relu{index}", 0, 0, 0, size, size))
            channels, index = out, index + 1
        side //= 2
        work.append(Work(f"pool{len(work)}", 0, 0, 0, channels * side * side, channels * side * side * 4))
    width = channels * side * side
    for number, out in enumerate((4096, 4096, 1000)):
        work.append(Work(f"fc{number}", width * out, 0, width * out + out, out, width))
        if out == 4096:
            work += [Work(f"fcrelu{number}", 0, 0, 0, out, out), Work(f"dropout{number}", 0, 0, 0, out, out)]
        width = out
    return work


def resnet50(side: int = 224) -> list[Work]:
    """Stem, 16 bottleneck units and the classifier; a unit is one layer, since its shortcut ties it together."""
    side //= 2
    work = [Work("stem", 49 * 3 * 64 * side * side, 0, 49 * 3 * 64, 64 * side * side / 4, 67 * side * side * 2)]
    side, channels = side // 2, 64
    for stage, (width, units) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for unit in range(units):
            side = side // 2 if unit == 0 and stage else side
            out, pixels = 4 * width, side * side
            parameters = channels * width + 9 * width * width + width * out + (channels * out if unit == 0 else 0)
            kept = pixels * (channels + 4 * width + 2 * out)
            work.append(Work(f"unit{stage}.{unit}", parameters * pixels, 0, parameters, out * pixels, kept))
            channels = out
    return [*work, Work("classifier", channels * 1000, 0, channels * 1000 + 1000, 1000, channels)]


FAMILIES: dict[str, Callable[[], list[Work]]] = {
    "gpt2": lambda: gpt(12, 768),
    "gpt2-medium": lambda: gpt(24, 1024),
    "gpt2-large": lambda: gpt(36, 1280),
    "gpt2-xl": lambda: gpt(48, 1600),
    "llama-7b": lambda: llama(32, 4096, 11008),
    "llama-13b": lambda: llama(40, 5120, 13824),
    "llama-30b": lambda: llama(60, 6656, 17920),
    "bert-48": lambda: gpt(48, 1024, 512, 30522),
    "vgg-16": vgg16,
    "resnet-50": resnet50,
}
