"""Tables of `minicaps.bench --what scaling`: measured steps and sums, and the cost model."""

from minicaps.bench.cost import Link, Step

LARGEST_ERROR = 0.5  # of a fit that describes anything


def print_measured(found):
    """Print the measured strong and weak scaling."""
    print(
        "CapsNet, training step, float32: measured here, each rank with one thread on its own core"
    )
    print(f"strong: {found['batch']} images in all; weak: {found['batch']} images on each rank")
    print("sum: of all gradients, part of the step; efficiency: 100% if ranks cost no time\n")
    heads = f"{'ranks':>6}{'images':>8}{'step ms':>10}{'sum ms':>8}{'images/s':>10}"
    print(f"{'':20}{heads}{'speed-up':>10}{'efficiency':>12}")
    steps = [{"ranks": run["ranks"], **step} for run in found["measured"] for step in run["steps"]]
    for preset in dict.fromkeys(step["preset"] for step in steps):
        own = [step for step in steps if step["preset"] == preset]
        for kind in ("strong", "weak"):
            for step in own:
                if step["kind"] in (kind, "both"):
                    _print_step(f"{preset}, {kind}", step, own[0])
    print()


def _print_step(name, step, alone):
    gain = speed_up(step, alone)
    sum_ms = f"{1e3 * step['sum']:,.1f}" if step["ranks"] > 1 else "–"
    print(f"{name:20}{step['ranks']:6}{step['images']:8,}{1e3 * step['step']:10,.1f}", end="")
    print(f"{sum_ms:>8}{step['images'] / step['step']:10,.1f}", end="")
    print(f"{gain:10.2f}{gain / step['ranks']:12.0%}")


def speed_up(step, alone):
    """Return how many times as many images per second a step takes as one on a single rank."""
    return (step["images"] / step["step"]) / (alone["images"] / alone["step"])


def print_sums(found):
    """Print the measured sums, and the links fitted to them."""
    runs = [run for run in found["measured"] if run["sums"]]
    if not runs:
        return
    print(f"{'sums of arrays, ms':20}" + "".join(f"{_bytes(size):>10}" for size in found["sizes"]))
    for run in runs:
        times = "".join(f"{1e3 * taken:10,.3f}" for _, taken in run["sums"])
        print(f"{run['ranks']:14} ranks{times}")
    error = found["fits"][0]["error"]
    if error > LARGEST_ERROR:
        print(f"Even the best fit to these sums is off by {error:.0%}: the machine was busy;")
        print("measure again.\n")
        return
    per_added = 1e9 * found["per_added"]
    print(f"adding takes {per_added:.2f} ns per byte (measured); fitted to the sums:")
    for fit in found["fits"]:
        link = _described(Link(fit["latency"], fit["per_byte"], fit["per_added"]))
        print(f"{fit['sum']:>14}: {link}, off by at most {fit['error']:.0%}")
    if [run["ranks"] for run in runs] == [2]:
        print("On two ranks, these formulas differ too little to tell which sum MPI uses.")
    print()


def print_models(found):
    """Print the model of many machines, and its assumptions."""
    batch, most = found["batch"], found["models"][0]["rows"][-1]["ranks"]
    print(f"CapsNet, training step, float32: modeled for up to {most:,} machines")
    print(f"strong: speed-up with {batch} images in all; weak: efficiency with {batch} per machine")
    print(assumptions(found))
    for model in found["models"]:
        _print_model(model, found["networks"])
    print()


def assumptions(found):
    """Return the assumptions of the model in a few lines."""
    lines = [f"Assumed: a rank of {found['threads']} threads on each machine ({found['cpu']});"]
    for name, (latency, per_byte) in found["networks"].items():
        link = _described(Link(latency, per_byte, found["per_added"]))
        lines.append(f"{name} between machines: {link}, no other traffic;")
    lines += [
        "the fastest of tree (recursive doubling), ring and halving sums the gradients after the",
        f"step or, hidden, in {found['buckets']} equal buckets in the backward pass, which they do",
        "not slow; copying them takes no time",
    ]
    batch = found["batch"]
    if batch < found["models"][0]["rows"][-1]["ranks"]:
        lines[-1] += f"; with {batch} images in all, more than {batch:,} ranks leave"
        lines.append("some without an image, which only take part in the sum")
    return "\n".join(lines)


def busy(model):
    """Return a sentence that says why a model means nothing, or None."""
    found = Step(**model["step"]).out_of_order()
    if found is None:
        return None
    fewer, more = found
    noun = "image" if fewer == 1 else "images"
    return f"{fewer:,} {noun} took longer than {more:,}: the machine was busy; measure again."


def _print_model(model, networks):
    step = model["step"]
    print(f"\n{model['preset']}: gradients of {model['bytes'] / 1e6:.1f} MB; measured here, ms:")
    print("images" + "".join(f"{images:>9,}" for images in step["images"]))
    print("step  " + "".join(f"{1e3 * taken:9,.1f}" for taken in step["seconds"]))
    if message := busy(model):
        print(message)
        return
    heads = f"{'sum ms':>9}{'':>9}{'strong':>7}{'hidden':>7}{'weak':>6}{'hidden':>7}"
    print(f"{'':6}" + "".join(f"{name:>45}" for name in networks))
    print(f"{'ranks':>6}" + len(networks) * heads)
    by_network = [[row for row in model["rows"] if row["network"] == name] for name in networks]
    for rows in zip(*by_network, strict=True):
        cells = "".join(_cells(row, of[0]) for row, of in zip(rows, by_network, strict=True))
        print(f"{rows[0]['ranks']:6,}{cells}")


def _cells(row, alone):
    cells = f"{'–':>9}{'':9}"
    if row["ranks"] > 1:
        cells = f"{1e3 * row['seconds']:9,.1f} {row['sum']:8}"
    strong = "".join(f"{alone[key] / row[key]:7.1f}" for key in ("strong", "strong_hidden"))
    weak, hidden = (alone[key] / row[key] for key in ("weak", "weak_hidden"))
    return f"{cells}{strong}{weak:6.0%}{hidden:7.0%}"


def _described(link):
    latency, per_byte = 1e6 * link.latency, 1e9 * link.per_byte
    return f"{latency:,.1f} µs per message, {per_byte:.2f} ns per byte"


def _bytes(size):
    return f"{size >> 20} MiB" if size >= 2**20 else f"{size >> 10} KiB"
