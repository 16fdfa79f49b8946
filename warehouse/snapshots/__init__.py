"""What a reader sees: history, ledger and live rows at one consistent moment."""
