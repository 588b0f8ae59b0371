# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # What does the result depend on?
#
# A sweep over two constants of the platform: the IOMMU's time for a remapped message, and the time of a posted update.
# On a cluster, `campanile.sweep("costs.toml", ray="auto")` gives the same table.

# %%
from pathlib import Path
from tempfile import mkdtemp

import campanile
import matplotlib.pyplot as plt

folder = Path(mkdtemp())
(folder / "costs.toml").write_text("""
scenario = "emr-4-drives"
deliveries = ["remapped", "posted"]
seeds = 2
[set]
duration = "1 ms"
[grid]
"fabric.remap_service" = ["20 ns", "50 ns", "100 ns"]
"fabric.posted_update" = ["20 ns", "60 ns", "150 ns"]
""")
swept = campanile.sweep(folder / "costs.toml", out=folder / "results")
table = swept.to_pandas()
iops = table[table.quantity == "iops"]
remap, update = "fabric.remap_service [ns]", "fabric.posted_update [ns]"
mean = iops.groupby(["delivery", remap, update])["value"].mean().unstack("delivery")
mean

# %%
figure, plots = plt.subplots(1, 2, sharey=True, figsize=(9, 3.5))
for plot, key in zip(plots, [remap, update]):
    for delivery in ["remapped", "posted"]:
        line = mean[delivery].groupby(key).mean() / 1e6
        plot.plot(line.index, line.values, marker="o", label=delivery)
    plot.set_xlabel(key)
plots[0].set_ylabel("million I/Os a second")
plots[0].legend()
figure.tight_layout()

# %% [markdown]
# Each constant moves the delivery that uses it.

# %%
spread = {
    (delivery, key): mean[delivery].groupby(key).mean().pipe(lambda line: line.max() / line.min() - 1)
    for delivery in ["remapped", "posted"]
    for key in [remap, update]
}
for (delivery, key), share in spread.items():
    print(f"{delivery:9} {key:28} {share:6.1%}")
assert spread["remapped", remap] > spread["posted", remap]
assert spread["posted", update] > spread["remapped", update]
