"""
Draws figures
=============

And leaves one open, in another style.
"""

import matplotlib.pyplot as plt

print("open:", plt.get_fignums(), "width:", plt.rcParams["lines.linewidth"])
plt.rcParams["lines.linewidth"] = 7.5
plt.style.use("dark_background")
figure, axes = plt.subplots()
axes.plot([1, 2], [1, 2])
axes.set_title("Two points")
