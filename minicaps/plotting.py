"""Pictures of a run. Matplotlib is imported when a picture is drawn, never with minicaps."""

import functools
import math

import numpy as np

from minicaps.checkpoint import replacing

INK = "#444444"
LONGEST = 24  # letters of a name
BLUE, ORANGE = "#0072B2", "#D55E00"  # told apart by colour-blind readers and in grey print
MEMBERS = (BLUE, ORANGE, "#009E73", "#CC79A7")  # of classes that share a picture


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _save(figure, path):
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120, facecolor="white")


def _names_as_they_are(draw):
    """Let a dollar sign in the name of a class begin no formula."""

    @functools.wraps(draw)
    def drawing(*args, **keywords):
        import matplotlib

        with matplotlib.rc_context({"text.parse_math": False}):
            return draw(*args, **keywords)

    return drawing


def curves(history, path):
    """Draw loss and error by epoch; history is a list of the rows of metrics.csv."""
    from matplotlib.ticker import MaxNLocator

    figure = _figure(9, 3.6)
    epochs = [row["epoch"] for row in history]
    loss, error = figure.subplots(1, 2)
    for part, colour, marker in (("train", BLUE, "o"), ("validation", ORANGE, "s")):
        if f"{part}_loss" not in history[0]:
            continue
        style = {"color": colour, "marker": marker, "markersize": 4, "label": part}
        if part == "train":
            style["label"] = "train, while it learns"
        loss.plot(epochs, [row[f"{part}_loss"] for row in history], **style)
        error.plot(epochs, [100 * (1 - row[f"{part}_accuracy"]) for row in history], **style)
    loss.set(title="Loss: falling means learning", ylabel="loss")
    error.set(title="Error: the gap shows overfitting", ylabel="wrong answers, %")
    for axes in (loss, error):
        axes.set(
            xlabel="epoch", xlim=(0.5, len(epochs) + 0.5), ylim=(0, 1.05 * axes.dataLim.y1 or 1)
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    _save(figure, path)


@_names_as_they_are
def reconstructions(images, drawn, labels, answers, path):
    """Draw inputs above their reconstructions; images and drawn (n, C, H, W), names of classes."""
    n = len(images)
    figure = _figure(max(6, 1 + 0.95 * n), 2.7)  # inches, at least for the title
    figure.suptitle(
        "Input above; below, what the decoder draws from the longest capsule", color=INK
    )
    axes = figure.subplots(2, n, squeeze=False)
    for k in range(n):
        for row, picture in ((0, images[k]), (1, drawn[k])):
            axes[row, k].imshow(_channels_last(picture), cmap="gray", vmin=0, vmax=1)
            axes[row, k].set(xticks=[], yticks=[])
        right = labels[k] == answers[k]
        axes[0, k].set_title(labels[k], color=INK)
        axes[1, k].set_xlabel(
            answers[k] if right else f"{answers[k]} ✗", color=INK if right else ORANGE
        )
    axes[0, 0].set_ylabel("input", color=INK)
    axes[1, 0].set_ylabel("drawn", color=INK)
    _save(figure, path)


def members(images, drawn, labels, seen, class_names, path, *, title=None):
    """Draw pictures of several classes, and each of the classes as redrawn on its own.

    images (n, C, H, W); drawn (n, P, C, H, W), what is drawn for each class of labels (n, J) in
    their order, or None without a decoder; seen (n, J), the classes that the network answers.
    title: what the pictures are, by default that they are redrawn.
    """
    n, most = len(images), 0 if drawn is None else drawn.shape[1]
    names = ["picture", "all drawn", *(f"drawn {k + 1}" for k in range(most))]
    names = names[: 2 + most if most else 1]
    figure = _figure(max(7, 1.3 + 1.2 * n), 1.3 + 1.3 * len(names))
    titles = [title or "Several classes in a picture"]
    if most:
        titles.append("below, each is drawn again from its own capsule alone")
    figure.suptitle(": ".join(titles), color=INK, fontsize=11)
    axes = figure.subplots(len(names), n, squeeze=False)
    for k in range(n):
        rows = [images[k]] if drawn is None else [images[k], *drawn[k]]
        rows = [_channels_last(row) for row in rows]
        if most:
            rows.insert(1, _overlaid(drawn[k]))
        _column(axes[:, k], rows, labels[k], seen[k], class_names)
    for row, name in enumerate(names):
        axes[row, 0].set_ylabel(name, color=INK)
    _save(figure, path)


def _column(axes, rows, labels, seen, class_names):
    """A picture of `members` with its drawings below, each with its class in its colour."""
    present, answer = (
        [short(class_names[k], 12) for k in np.flatnonzero(which)] for which in (labels, seen)
    )
    for one, picture in zip(axes, rows, strict=True):
        one.imshow(picture, cmap="gray", vmin=0, vmax=1)
        one.set(xticks=[], yticks=[])
    axes[0].set_title(", ".join(present) or "none", color=INK, fontsize=9, **PLAIN)
    right = (seen == labels).all()
    axes[0].set_xlabel(
        f"seen: {', '.join(answer) or 'none'}" + ("" if right else " ✗"),
        color=INK if right else ORANGE,
        fontsize=8,
        **PLAIN,
    )
    for k, one in enumerate(axes[2:]):
        if k < len(present):
            one.set_xlabel(present[k], color=MEMBERS[k % len(MEMBERS)], fontsize=9, **PLAIN)
        else:
            one.get_images()[0].set_visible(False)
            one.set_frame_on(False)


def _overlaid(drawn):
    """Pictures (P, C, H, W) laid over each other (H, W, 3), each in a colour of its own."""
    picture = np.zeros((*drawn.shape[2:], 3))
    for k, one in enumerate(drawn.mean(axis=1)):
        colour = MEMBERS[k % len(MEMBERS)]
        rgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        picture += one[..., None] * rgb
    return np.minimum(picture, 1)


# ---- of an evaluation

MOST_NUMBERS = 24  # classes: in more, the numbers would not be readable
MOST_NAMES = 100  # classes: of more, every second, third, … is named


@_names_as_they_are
def confusion(counts, class_names, path):
    """Draw how often a class (row) got which answer (column); counts (J, J), whole numbers.

    Shades are shares of the row; their square root, so that one of a hundred can be seen.
    """
    n = len(counts)
    side = min(max(4.5, 1.5 + 0.36 * n), 12)  # inches
    figure = _figure(side + 0.8, side + 0.9)
    axes = figure.subplots()
    right = np.eye(n, dtype=bool)
    shares = np.sqrt(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    for which, colour in ((right, BLUE), (~right, ORANGE)):
        axes.imshow(np.ma.array(shares, mask=~which), cmap=_shades(colour), vmin=0, vmax=1)
    figure.suptitle(_title_of_confusion(counts, class_names), color=INK, fontsize=10)
    axes.set_xlabel("answer", color=INK)
    axes.set_ylabel("class", color=INK)
    step = -(-n // MOST_NAMES)
    names = [short(name, 20 if n <= MOST_NUMBERS else 14) for name in class_names][::step]
    size = 9 if n <= MOST_NUMBERS else max(4.5, 9 * MOST_NUMBERS / n)
    upright = max(map(len, names)) > 2
    places = np.arange(0, n, step)
    axes.set_xticks(places, names, fontsize=size, rotation=90 if upright else 0)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    if n <= MOST_NUMBERS:
        size = min(9, 26 / len(str(counts.max())))
        for k, j in np.argwhere(counts):
            colour = "white" if shares[k, j] > 0.6 else INK
            axes.text(j, k, counts[k, j], ha="center", va="center", fontsize=size, color=colour)
    _save(figure, path)


def _title_of_confusion(counts, class_names):
    wrong = counts - np.diag(counts.diagonal())
    right, total = counts.trace(), counts.sum()
    said = f"Blue: {right:,} of {total:,} right. "
    if not wrong.any():
        return said + "No wrong answers"
    k, j = np.unravel_index(wrong.argmax(), wrong.shape)
    said += f"Orange: {total - right:,} wrong,\nmost often "
    names = short(class_names[k], 16), short(class_names[j], 16)
    return f"{said}{names[0]} taken for {names[1]} ({wrong.max():,})"


@_names_as_they_are
def worst(images, drawn, captions, wrong, path):
    """Draw pictures with what the decoder makes of them, the worst first.

    images (n, C, H, W); drawn: the same from the strongest rival's capsule and from the right one,
    or None without a decoder; captions: of each picture its class and its rival, two texts; wrong
    (n,): whether the rival was the answer.
    """
    n, rows = len(images), [images, *(drawn or ())]
    shape = min(max(images.shape[2] / images.shape[3], 0.4), 2.5)  # as high as it is wide: 1
    height = 1.2 + (0.3 + 1.1 * shape) * len(rows)
    figure = _figure(max(8.6, 1 + 1.2 * n), max(2.4, height))  # inches, at least for the title
    figure.suptitle(_title_of_worst(drawn, wrong), color=INK, fontsize=11)
    axes = figure.subplots(len(rows), n, squeeze=False)
    for k, (own, rival) in enumerate(captions):
        for row, pictures in enumerate(rows):
            axes[row, k].imshow(_channels_last(pictures[k]), cmap="gray", vmin=0, vmax=1)
            axes[row, k].set(xticks=[], yticks=[])
        axes[0, k].set_title(own, color=INK, fontsize=8)
        mark, colour = (" ✗", ORANGE) if wrong[k] else ("", INK)
        axes[0, k].set_xlabel(rival + mark, color=colour, fontsize=8)
    for row, name in enumerate(
        ("picture", "drawn as\nthe rival", "drawn as\nits class")[: len(rows)]
    ):
        axes[row, 0].set_ylabel(name, color=INK)
    _save(figure, path)


def _title_of_worst(drawn, wrong):
    if any(wrong):
        said = "The worst answers first: above each picture its class, below the strongest rival"
        said += ", ✗ if that was the answer."
    else:
        said = "No wrong answers. The closest first: above its class, below the strongest rival."
    return said + ("\nWhich drawing is more like the picture?" if drawn else "")


def short(text, most=LONGEST):
    """A text of at most so many letters: of a longer one, its start and its end."""
    return text if len(text) <= most else f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"


def _shades(colour):
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(colour, ["white", colour])


def _channels_last(picture):
    """(C, H, W) -> (H, W) for one channel, (H, W, 3) for three; more are averaged."""
    if len(picture) == 3:
        return np.moveaxis(picture, 0, -1)
    return picture.mean(axis=0)


# ---- one picture, and what the network makes of it


SHADES = "cividis"  # light means more, in grey print too
PALE = "#B8C4CC"
SHOWN = 30  # bars that can be read
ROWS = 5  # iterations


@_names_as_they_are
def prediction(path, picture, ranking, score, headline, *, shares=None, drawn=None):
    """Draw a picture (C, H, W) as the network sees it, and what the network says of it.

    ranking: [(name, score)], highest first; score: what it is called. shares: (map, grid, equal),
    as in `_show_shares`. drawn: what the decoder makes of the answer's capsule, (C, H, W).
    """
    panels = 2 + (shares is not None) + (drawn is not None)
    figure = _figure(3.1 * panels + 0.6, 3.7)
    figure.suptitle(headline, color=INK)
    axes = iter(figure.subplots(1, panels))
    _show_picture(next(axes), picture, "As the network sees it")
    _bars(next(axes), ranking, score)
    if shares is not None:
        _show_shares(figure, next(axes), *shares, picture=picture)
    if drawn is not None:
        _show_picture(next(axes), drawn, "Drawn from the answer's capsule")
    _save(figure, path)


def _bars(axes, ranking, score):
    """Scores from 0 to 1 as bars, the highest above."""
    names = [short(name) for name, _ in ranking[:SHOWN]]
    values = [value for _, value in ranking[:SHOWN]]
    places = range(len(values))
    axes.barh(places, values, color=[BLUE] + [PALE] * (len(values) - 1))
    axes.set_yticks(places, names, fontsize=min(10, 130 / len(values)))
    axes.invert_yaxis()
    axes.axvline(0.5, color=INK, linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), xlabel=score)
    more = f" (the first {SHOWN} of {len(ranking)})" if len(ranking) > SHOWN else ""
    axes.set_title(f"Above 0.5: seen{more}", fontsize=10, color=INK)


def _show_shares(figure, axes, shares, grid, equal, *, picture, title=None, spread=0):
    """Draw the shares (rows, columns) that children send to a parent, where they look in a picture.

    grid: `minicaps.models.sizes.ChildrenGrid`. equal: the share if a child sent the same to all; it
    is the middle of the shades, which reach as far as the shares do, and `spread` at least.
    """
    from matplotlib.colors import TwoSlopeNorm

    spread = max(spread, abs(shares - equal).max(), equal / 10)
    rows, columns = shares.shape
    low, step = grid.first - grid.step / 2, grid.step
    extent = (low, low + step * columns, low + step * rows, low)
    ends = max(0, equal - spread), equal + spread
    shades = TwoSlopeNorm(equal, *ends)
    image = axes.imshow(shares, cmap=SHADES, extent=extent, norm=shades)
    height, width = picture.shape[1:]
    ink = picture.mean(axis=0)
    if ink.min() < ink.max():
        level = (ink.min() + ink.max()) / 2
        axes.contour(ink, [level], colors="white", linewidths=2.5)
        axes.contour(ink, [level], colors="black", linewidths=1)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.set_title(title or "Parts that vote for it: light", fontsize=10, color=INK)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, format="%.2g")
    bar.set_ticks([ends[0], equal, ends[1]])


def _show_picture(axes, picture, title):
    axes.imshow(_channels_last(picture), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=10, color=INK)


@_names_as_they_are
def couplings(path, picture, columns, entropies, most, grid):
    """Draw where the children lie that choose a parent, iteration by iteration, a row for each.

    columns: [(title, maps, equal)], maps (iterations, rows, columns); entropies: of every
    iteration, in nats, of at most `most`; grid: `minicaps.models.sizes.ChildrenGrid`. Of many
    iterations, `ROWS` are drawn, the first and the last among them.
    """
    drawn = np.unique(np.linspace(0, len(entropies) - 1, ROWS).round().astype(int))
    n = len(drawn)
    figure = _figure(3.4 * len(columns) + 0.8, 2.9 * n + 0.8)
    figure.suptitle(
        "Couplings: lighter is a larger share for that capsule.\n"
        "Falling entropy: the children choose",
        color=INK,
    )
    axes = figure.subplots(n, len(columns), squeeze=False)
    for k, (name, maps, equal) in enumerate(columns):
        spread = abs(maps - equal).max()
        for row, t in enumerate(drawn):
            title = "" if row else f"{name}\n"
            title += f"iteration {t + 1}: entropy {entropies[t]:.3f} of {most:.3f}"
            shown = {"picture": picture, "title": title, "spread": spread}
            _show_shares(figure, axes[row, k], maps[t], grid, equal, **shown)
    _save(figure, path)


@_names_as_they_are
def sweeps(path, drawn, offsets, name):
    """Draw what the decoder makes of a capsule when one of its numbers is moved: a row for each.

    drawn: (D, offsets, C, H, W).
    """
    rows, columns = drawn.shape[:2]
    height, width = drawn.shape[3:]
    figure = _figure(0.62 * columns + 1.2, 0.62 * height / width * rows + 1.4)
    figure.suptitle(
        f"Capsule of {short(name)}: each row moves one of its numbers.\n"
        "What changes along a row is what the number means",
        color=INK,
    )
    axes = figure.subplots()
    _show_mosaic(axes, drawn)
    axes.set_xticks(
        (np.arange(columns) + 0.5) * (width + 1) - 1,
        [f"{offset:+.2f}" if abs(offset) > 1e-9 else "0" for offset in offsets],
    )
    axes.set_yticks((np.arange(rows) + 0.5) * (height + 1) - 1, range(1, rows + 1))
    axes.set(xlabel="added to the number", ylabel="number")
    _save(figure, path)


def kernels(path, weights):
    """Draw the kernels (O, C, K, K) of the first convolution; three channels as colours."""
    n, columns = len(weights), min(16, len(weights))
    rows = math.ceil(n / columns)
    cells = np.ones((rows * columns, *weights.shape[1:]))
    largest = abs(weights).max(axis=(1, 2, 3), keepdims=True)
    cells[:n] = 0.5 + 0.5 * weights / np.where(largest > 0, largest, 1)
    figure = _figure(max(6, 0.55 * columns), 0.55 * rows * 6 / min(6, columns) + 1)
    figure.suptitle(
        "Kernels of the first convolution, grey is zero.\n"
        "Edges and bars are what it looks for; noise: little was learned",
        color=INK,
    )
    axes = figure.subplots()
    axes.axis("off")
    _show_mosaic(axes, cells.reshape(rows, columns, *weights.shape[1:]))
    _save(figure, path)


def _show_mosaic(axes, pictures):
    """Show pictures (rows, columns, C, H, W) side by side, a white line between."""
    rows, columns, _, height, width = pictures.shape
    cells = [[_channels_last(picture) for picture in row] for row in pictures]
    rest = cells[0][0].shape[2:]
    whole = np.ones((rows * (height + 1) - 1, columns * (width + 1) - 1, *rest))
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            top, left = r * (height + 1), c * (width + 1)
            whole[top : top + height, left : left + width] = cell
    axes.imshow(whole, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
