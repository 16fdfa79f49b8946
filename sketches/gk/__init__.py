"""The Greenwald-Khanna summary of quantiles."""
