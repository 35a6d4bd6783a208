"""Models: loading, generating, and playing with a trained one."""
