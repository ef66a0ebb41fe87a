"""Documents packed into one row have the scores and gradients that each has alone, to 1e-10 in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jobs.packed import CONTEXT, SEPARATOR, VOCABULARY, documents
from torch import Tensor, nn
from torch.nn import functional as F

from worker.data.packing import IGNORED, PackedDocuments, first_fit
from worker.models.gpt import gpt_layers


def model() -> nn.Sequential:
    torch.manual_seed(1)
    layers = gpt_layers(VOCABULARY, CONTEXT, 16, 2, 2, 0.0, SEPARATOR)
    return nn.Sequential(*(build() for build in layers.values())).double()


def total(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum")


def test_scores_and_gradients_equal_those_of_each_document_alone() -> None:
    packed, alone = model(), model()
    data = PackedDocuments(documents(), CONTEXT, SEPARATOR)
    total(packed(data.samples(range(len(data)))[0]), data.samples(range(len(data)))[1]).backward()
    for document in documents():
        inputs, targets = PackedDocuments([document], CONTEXT, SEPARATOR).samples([0])
        used = len(document) + 1
        total(alone(inputs[:, :used]), targets[:, :used]).backward()
    for one, other in zip(packed.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-10, atol=1e-12)


def test_what_stands_in_another_document_changes_nothing() -> None:
    first, second = torch.tensor([3, 4, 5]), torch.tensor([6, 7])
    layers = model()
    row = torch.cat([first, torch.tensor([SEPARATOR]), second])[None]
    changed = row.clone()
    changed[0, :3] = torch.tensor([9, 8, 7])
    assert torch.equal(layers(row)[0, 4:], layers(changed)[0, 4:])
    assert not torch.equal(layers(row)[0, :3], layers(changed)[0, :3])


@given(st.lists(st.integers(1, 10), min_size=1, max_size=30))
def test_rows_hold_every_document_once_and_more_than_half_full(lengths: list[int]) -> None:
    rows = first_fit(lengths, 10)
    assert sorted(document for row in rows for document in row) == list(range(len(lengths)))
    filled = [sum(lengths[document] for document in row) for row in rows]
    assert max(filled) <= 10
    assert sum(fill <= 5 for fill in filled) <= 1


def test_a_document_predicts_itself_to_its_end_and_nothing_beyond() -> None:
    data = PackedDocuments([torch.tensor([5, 6]), torch.tensor([7])], 6, SEPARATOR)
    inputs, targets = data.samples([0])
    assert inputs.tolist() == [[5, 6, SEPARATOR, 7, SEPARATOR, SEPARATOR]]
    assert targets.tolist() == [[6, SEPARATOR, IGNORED, SEPARATOR, IGNORED, IGNORED]]


def test_a_document_longer_than_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="document 0 has 7 tokens, a row 6"):
        PackedDocuments([torch.arange(1, 7)], 6, SEPARATOR)
