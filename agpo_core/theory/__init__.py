"""Theory, computed without training: the bias of group normalisation, KL estimators, AGPO's convergence bound."""
