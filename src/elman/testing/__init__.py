"""A test suite for models: the laws that every language model must satisfy, and a model small enough to check by hand.

    check_language_model(lm, rng=np.random.default_rng(0))        # all laws; an error names the law that failed
    @pytest.mark.parametrize("law", LAWS)                         # or each law as a test of its own
    def test_my_model_keeps_the_law(law): law(lm, np.random.default_rng(0), 1e-5)
    check_conditional_model(lm, sources, rng=rng)                 # a seq2seq model: the same laws, given each source
    check_task_model(model, folder=tmp_path, lines=lines, data=path)  # a tagger, classifier, ...: laws of predictions

Laws use a model only through the protocol `elman.lm.FreeModel`. Half of the texts are sampled from the model, half are
uniform; tokens of probability zero are allowed. `B` rows, `T` tokens, `V` vocabulary.
"""

from elman.testing.comparing import BrokenLawError
from elman.testing.laws import (
    LAWS,
    Law,
    a_row_alone_equals_the_row_in_a_batch,
    a_state_is_never_changed,
    all_strings_sum_to_one,
    check_language_model,
    cutting_a_text_changes_nothing,
    joining_commutes_with_reading,
    lines_score_as_they_lie,
    padding_is_neutral,
    predictions_are_normalised,
    recording_changes_nothing,
    samples_follow_the_prediction,
    saving_and_loading_is_exact,
    scoring_equals_stepping,
    selecting_commutes_with_reading,
    the_future_cannot_change_the_past,
    the_widest_beam_finds_the_best,
)
from elman.testing.sources import (
    SOURCE_LAWS,
    Given,
    SourceLaw,
    a_source_alone_equals_the_source_in_a_batch,
    check_conditional_model,
    joined_sources_score_as_before,
)
from elman.testing.table import TableLM
from elman.testing.task_laws import check_task_model

__all__ = [
    "LAWS",
    "SOURCE_LAWS",
    "BrokenLawError",
    "Given",
    "Law",
    "SourceLaw",
    "TableLM",
    "a_row_alone_equals_the_row_in_a_batch",
    "a_source_alone_equals_the_source_in_a_batch",
    "a_state_is_never_changed",
    "all_strings_sum_to_one",
    "check_conditional_model",
    "check_language_model",
    "check_task_model",
    "cutting_a_text_changes_nothing",
    "joined_sources_score_as_before",
    "joining_commutes_with_reading",
    "lines_score_as_they_lie",
    "padding_is_neutral",
    "predictions_are_normalised",
    "recording_changes_nothing",
    "samples_follow_the_prediction",
    "saving_and_loading_is_exact",
    "scoring_equals_stepping",
    "selecting_commutes_with_reading",
    "the_future_cannot_change_the_past",
    "the_widest_beam_finds_the_best",
]
