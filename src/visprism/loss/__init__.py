"""The loss as a function of a model's parameters: derivatives, spectra, planes of weights."""
