"""The pages on which a researcher tries things out: simulations, drafts from a sentence, comparisons."""
