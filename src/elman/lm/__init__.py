"""The protocol of language models and its states; searching, evaluating and mixing, written over states alone."""
