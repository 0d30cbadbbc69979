"""Speed, memory and accuracy against peers, in one run, as ratios."""
