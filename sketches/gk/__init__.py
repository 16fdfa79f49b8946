"""The Greenwald-Khanna quantile summary: model, sketch and stored form."""
