# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # The four-drive study
#
# Four fast drives behind one IOMMU each read 4 KiB blocks. Remapped messages pass the IOMMU one after the other; posted
# messages are one atomic update each, and one notification announces many. How much does posting gain, and when?

# %%
import campanile

SPAN = {"duration": "2 ms"}  # enough to see it; the published rows use the scenario's own span
result = campanile.run("emr-4-drives", delivery=["remapped", "posted"], set=SPAN, seeds=3)
table = result.to_pandas().pivot(index=["quantity", "unit"], columns="delivery", values="mean")
table.head(12)

# %%
gain = result.mean("posted", "iops") / result.mean("remapped", "iops") - 1
print(f"posting gains {gain:.0%} of throughput")
assert gain > 0.1

# %% [markdown]
# With one I/O at a time nothing waits at the IOMMU, and there is nothing to gain.

# %%
low = campanile.run("emr-low-qd1", delivery=["remapped", "posted"], set=SPAN, seeds=3)
gain_low = low.mean("posted", "iops") / low.mean("remapped", "iops") - 1
print(f"at depth 1: {gain_low:+.1%}")
assert abs(gain_low) < gain
