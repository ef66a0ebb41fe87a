"""A forest of flat arrays says what scikit-learn's says, with an interval, a confidence and reasons."""

import hashlib
import math
import subprocess
import sys

import numpy as np
import pytest
from forests import CPU, model, rows

from agent.forest.evaluation import evaluate
from agent.forest.model import Hardware, conformal_quantile
from agent.forest.rows import folds
from agent.forest.schema import DYNPIPE, NODE, SCHEMAS
from agent.forest.training import TooFewRows, flatten, train


@pytest.fixture(scope="module")
def trained():
    return model()


def test_dyn14_the_schema_has_exactly_32_features_and_so_has_the_papers():
    assert len(NODE.names) == len(set(NODE.names)) == 32
    assert len(DYNPIPE.names) == len(set(DYNPIPE.names)) == 26 + 6
    assert set(SCHEMAS) == {"node", "dynpipe"}


def test_a_schemas_hash_changes_with_the_order_of_its_features():
    """The hash is written down here: a change of features needs a new version, or old models would be misread."""
    assert NODE.hash == "1fe3fb9f56088820"
    assert DYNPIPE.hash == "ce264c33a17e5fc3"
    text = "\n".join((NODE.name, str(NODE.version), *reversed(NODE.names)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] != NODE.hash


def test_flat_trees_predict_what_scikit_learn_predicts():
    from sklearn.ensemble import RandomForestRegressor

    random = np.random.default_rng(3)
    x, y = random.normal(size=(300, 5)), random.normal(size=300)
    forest = RandomForestRegressor(n_estimators=15, random_state=1).fit(x, y)
    trees = flatten(forest)
    fresh = random.normal(size=(200, 5))
    assert trees.predict(fresh)[0] == pytest.approx(forest.predict(fresh), abs=1e-12)
    assert (trees.leaves(fresh) == _leaves(forest, fresh)).all()


def _leaves(forest, x):
    starts = np.cumsum([0, *(tree.tree_.node_count for tree in forest.estimators_)])[:-1]
    return forest.apply(x) + starts


def test_contributions_of_the_decision_paths_sum_to_the_prediction(trained):
    values = {"own_wait_percent": 60.0, "loopback_bytes_per_s": 1e6}
    row = np.where(np.isnan(NODE.row(values)), trained.medians, NODE.row(values))
    start = trained.trees.value[trained.trees.roots].mean()
    assert start + trained.trees.contributions(row).sum() == pytest.approx(trained.trees.predict(row[None])[0][0])


def test_the_reasons_name_what_matters(trained):
    first, *_ = trained.reasons({"own_wait_percent": 65.0, "loopback_bytes_per_s": 1e6})
    assert first.feature == "own_wait_percent"
    assert first.factor > 1.2


def test_a_prediction_lies_in_its_interval_and_is_never_below_one(trained):
    for wait in (0.0, 30.0, 65.0):
        found = trained.predict({"own_wait_percent": wait, "loopback_bytes_per_s": 0.0})
        assert 1.0 <= found.low <= found.slowdown <= found.high
        assert found.slowdown == pytest.approx(1 / (1 - wait / 100), rel=0.15)


def test_b56_a_null_is_imputed_named_and_lowers_the_confidence_by_its_importance(trained):
    known = dict(zip(NODE.names, map(float, trained.medians), strict=True))
    whole = trained.predict(known)
    without = trained.predict({**known, "own_wait_percent": None})
    at = NODE.names.index("own_wait_percent")
    assert whole.confidence == 1.0
    assert without.confidence == pytest.approx(1.0 - trained.importances[at])
    assert without.missing == ("own_wait_percent",)
    assert without.slowdown == whole.slowdown  # the median stands in for it


def test_features_that_no_training_row_had_cost_no_confidence(trained):
    never = [name for name, part in zip(NODE.names, trained.importances, strict=True) if part == 0]
    assert never
    known = dict(zip(NODE.names, map(float, trained.medians), strict=True))
    assert trained.predict({**known, **dict.fromkeys(never)}).confidence == 1.0


def test_b59_what_is_no_number_counts_as_missing(trained):
    for nothing in (math.nan, math.inf, -math.inf):
        found = trained.predict({"own_wait_percent": nothing, "loopback_bytes_per_s": 0.0})
        assert "own_wait_percent" in found.missing
        assert math.isfinite(found.slowdown)
        assert math.isfinite(found.high)


def test_values_beyond_those_of_the_training_lower_the_confidence(trained):
    known = dict(zip(NODE.names, map(float, trained.medians), strict=True))
    found = trained.predict({**known, "own_wait_percent": 99.0})
    assert found.beyond == ("own_wait_percent",)
    assert found.confidence < 0.5


def test_dyn18_elsewhere_a_models_confidence_is_low(trained):
    known = dict(zip(NODE.names, map(float, trained.medians), strict=True))
    assert trained.predict(known, Hardware("H200", "8 devices")).confidence <= 0.3
    assert trained.predict(known, CPU).confidence == pytest.approx(0.8)  # a generic one of the same kind


def test_the_intervals_hold_nine_truths_in_ten_of_fresh_rows(trained):
    fresh = rows(400, seed=9)
    found = [trained.predict(dict(zip(NODE.names, row, strict=True))) for row in fresh.features]
    inside = [one.low <= truth <= one.high for one, truth in zip(found, fresh.slowdowns, strict=True)]
    assert 0.85 <= np.mean(inside) <= 1.0


def test_a_conformal_quantile_is_the_right_order_statistic():
    """https://arxiv.org/abs/2107.07511: with n = 9 scores and 90%, the ceil(10 x 0.9) = 9th; with 19, the 18th."""
    assert conformal_quantile(np.arange(1.0, 10.0), 0.9) == 9.0
    assert conformal_quantile(np.arange(1.0, 20.0), 0.9) == 18.0


def test_training_again_gives_the_same_forest():
    one, two = (train(rows(80), seed=5, trees=5) for _ in range(2))
    assert (one.trees.value == two.trees.value).all()
    assert one.quantile == two.quantile


def test_too_few_rows_are_refused():
    with pytest.raises(TooFewRows, match="at least"):
        train(rows(10))


@pytest.mark.parametrize("groups", [[0, 0, 0, 1, 1, 2], [0] * 12, list(range(7)), [0, 1]], ids=str)
def test_folds_hold_out_whole_groups_and_every_row_once(groups):
    groups = np.array(groups)
    masks = list(folds(groups, 5, 0))
    assert (np.sum(masks, axis=0) == 1).all()
    if len(set(groups.tolist())) > 1:
        assert all((groups[mask][:, None] != groups[~mask]).all() for mask in masks)


@pytest.mark.parametrize("split", ["kinds", "batch", "both", "random"])
def test_dyn16_on_held_out_rows_the_forest_beats_the_mean_and_ridge_where_the_truth_is_not_linear(split):
    found = evaluate(rows(240), split, lambda part: train(part, trees=20))
    assert found.forest.mape < found.ridge.mape < found.mean.mape
    assert 80 <= found.coverage <= 100


def test_an_agent_never_loads_scikit_learn():
    """It takes 60 MB; a model is trained in a process of its own."""
    code = "import sys, agent.main, agent.forest.model, agent.forest.file; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
