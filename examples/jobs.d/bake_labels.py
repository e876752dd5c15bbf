"""A label for every product that was sold, one after the other, with the progress shown."""

every = "45s"
timeout = "1m"


def run(ctx):
    # The same database that the SQL jobs work on; this runs in a process of its own.
    found = ctx.db.execute("SELECT DISTINCT product FROM orders ORDER BY product").fetchall()
    for done, (product,) in enumerate(found, start=1):
        label = f"{product.upper()}\nbaked {ctx.scheduled_at:%A, %d %B}\n"
        ctx.storage.put(f"labels/{product}.txt", label, ttl="1d")
        ctx.logger.info("label for %s is made", product)
        ctx.progress(done, len(found))
        if ctx.wait(1):  # true as soon as the run should end: a cancel, its timeout, a stop
            return None
    return {"labels": len(found)}
