"""What the model sees: pure functions over values. No disk, no clock, no network, no randomness."""
