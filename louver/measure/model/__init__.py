"""`louver bench model`: a language model's blocks, dense and with sparse weights. Its modules need PyTorch."""
