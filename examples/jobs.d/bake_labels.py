"""A label for every product, one after the other, with its progress shown."""

every = "45s"
timeout = "1m"


def run(ctx):
    products = ["rye bread", "sourdough", "croissant"]
    for done, product in enumerate(products, start=1):
        label = f"{product.upper()}\nbaked {ctx.scheduled_at:%A, %d %B}\n"
        ctx.storage.put(f"labels/{product}.txt", label.encode(), ttl="1d")
        ctx.logger.info("label for %s is made", product)
        ctx.progress(done, len(products))
        if ctx.wait(1):  # true as soon as the run should end: a cancel, its timeout, a stop
            return None
    return {"labels": len(products)}
