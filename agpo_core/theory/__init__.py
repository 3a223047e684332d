"""What is computed and not trained: the bias of group normalisation, KL estimators, AGPO's convergence bound."""
