# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---

# %% [markdown]
# # Is my server limited by its interrupts?
#
# `scripts/measure-server` measures a server, and `campanile.import_server("campanile-server.tar.gz")` makes a platform of
# the archive. Here a built-in platform takes its place, and `JOB` is the job that the server has.

# %%
import campanile

PLATFORM = "emr"  # or campanile.import_server(...).platform
JOB = "emr-4-drives"

advice = campanile.advise(
    JOB, platform=PLATFORM, among=["posted", "rq_affinity"], set={"duration": "2 ms"}, seeds=2, points=0
)
today = advice["today"]
print(f"today: {today['throughput']:,.0f} I/Os a second; {today['bottleneck']}")

# %% [markdown]
# A server whose delivery of messages is the bottleneck gains by posting. Each remedy has its interval.

# %%
advice.to_pandas()

# %%
best = advice["candidates"][0]
print(f"first: {best['name']}; {best['how']}")
assert best["remedy"] == "posted"

# %% [markdown]
# Where the drives themselves are the limit, posting gains nothing.

# %%
idle = campanile.advise("emr-low-qd1", among=["posted"], set={"duration": "2 ms"}, seeds=2, points=0)
print(idle["today"]["bottleneck"])
assert idle["today"]["bottleneck"] != today["bottleneck"]
