"""Tables of what people did and answered, for analysis elsewhere, with their codebook."""
