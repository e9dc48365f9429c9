"""The settings: their definitions, and the reader of `config.yaml` and the environment."""
