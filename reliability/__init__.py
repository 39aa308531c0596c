"""What elman survives, measured: kills, full disks, faults, damage, malformed text, degenerate data. Not shipped.

    python -m reliability [--full] [--rows 1,8,12] [--seed N]

A row is one property with a figure to hit. Each is measured in a process of its own, those that need one processor two at
a time; it does as many cases as fit into its share of the time, and prints one line
`name figure target pass|short|fail`. docs/reliability.md is made from the results.
"""
