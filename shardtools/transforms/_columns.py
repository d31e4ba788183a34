"""The columns of rows of tokens, by the names that readers know them by."""

TOKENS, LOSS_MASK, SEQ_LENS, DOC_IDS = "tokens", "loss_mask", "seq_lens", "doc_ids"
