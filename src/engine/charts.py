"""The data behind a matplotlib figure, as E2B gives it in the `chart` of a result.

chart_of(figure) reads the artists that are on the figure's axes: lines, scatter's collections,
bars, wedges and the parts of box plots. It changes nothing, imports nothing that the figure has
not brought along, and never raises: what cannot be told is {}. What it gives is bounded.
"""

import re
from math import isfinite
from sys import modules

import matplotlib.dates as dates
import numpy
from matplotlib.category import StrCategoryConverter
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer, ErrorbarContainer, StemContainer
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Wedge
from matplotlib.ticker import FixedLocator

MAX_UNITS = 1 << 18             # numbers, and texts by their length, in one chart
MAX_TEXT = 1000                 # characters of one text
SCALES = ("linear", "log", "symlog", "logit", "function", "functionlog", "asinh")
UNIT = re.compile(r"\s\(([^()]*)\)|\[([^\[\]]*)\]")
NO_LINE = ("none", "", " ")
DATE_FORMATTERS = (dates.DateFormatter, dates.AutoDateFormatter, dates.ConciseDateFormatter)


class TooMuch(Exception):
    """The chart would be larger than anybody wants it."""


class Budget:
    """Counts what goes into a chart; its methods are the only makers of texts and numbers."""

    def __init__(self, left):
        self.left = left

    def take(self, units):
        self.left -= units
        if self.left < 0:
            raise TooMuch

    def text(self, value):
        value = str(value)[:MAX_TEXT]
        self.take(1 + len(value) // 4)
        return value

    def title(self, value):
        return self.text(value) if value else None

    def number(self, value):
        self.take(1)
        value = float(value)
        return value if isfinite(value) else None

    def series(self, values, convert):
        """Many values at once: convert makes floats or texts of them."""
        self.take(len(values))
        return [self.text(v) if isinstance(v, str) else v for v in convert(values)]


# --- axes ---

class Scale:
    """One axis: what its numbers mean, and its ticks."""

    def __init__(self, axis, budget):
        self.axis, self.budget = axis, budget
        get = getattr(axis, "get_converter", None)              # matplotlib 3.10 hides the attribute
        self.converter = get() if get else axis.converter
        self.named = isinstance(self.converter, StrCategoryConverter)
        kind = type(self.converter).__name__
        self.periods = kind == "PeriodConverter" and hasattr(axis.axes, "freq") and "pandas" in modules
        self.dated = (self.periods or isinstance(self.converter, dates.DateConverter) or kind.endswith("DateConverter")
                      or isinstance(axis.get_major_formatter(), DATE_FORMATTERS))
        self.locs = [float(loc) for loc in axis.get_majorticklocs()]
        budget.take(len(self.locs))
        self.labels = [budget.text(label.get_text()) for label in axis.get_majorticklabels()]
        self.positions = numpy.array(self.locs[:len(self.labels)])

    def name(self):
        if self.dated:
            return "datetime"
        scale = self.axis.get_scale()
        if scale == "linear":
            return "categorical" if self.named or self.counts() else "linear"
        return scale if scale in SCALES else "function"

    def counts(self):
        """Whether the ticks are 0, 1, 2 ... with names in place of numbers."""
        return bool(self.labels) and all(loc == i and label and not is_number(label)
                                         for i, (loc, label) in enumerate(zip(self.locs, self.labels)))

    def ticks(self):
        # matplotlib gives ticks far outside of a date axis, even before year 1.
        return [self.date(loc, dates.UTC) if self.dated else loc for loc in self.locs if isfinite(loc)]

    def date(self, number, zone=None):
        """A position on a date axis as ISO text; naive like the data unless a zone is given."""
        if not isfinite(number):
            return None
        if self.periods:
            return modules["pandas"].Period(ordinal=int(number), freq=self.axis.axes.freq).start_time.isoformat()
        units = self.axis.get_units()
        zone = zone or (units if hasattr(units, "utcoffset") else None)
        date = dates.num2date(number, zone or dates.UTC)
        return (date if zone else date.replace(tzinfo=None)).isoformat()

    def values(self, data):
        """Positions or the user's own values, as a chart has them."""
        data = numpy.ma.filled(data, numpy.nan) if isinstance(data, numpy.ma.MaskedArray) else numpy.asarray(data)
        if data.dtype.kind == "M":
            return [None if date is None else iso(date) for date in data.astype("datetime64[us]").tolist()]
        if data.dtype.kind not in "biuf":
            return [one_value(value) for value in data.tolist()]
        if self.named:
            names = dict(zip(self.locs, self.labels))
            return [names.get(number, number if isfinite(number) else None) for number in data.astype(float).tolist()]
        if self.dated:
            return [self.date(number) for number in data.astype(float).tolist()]
        numbers = data.astype(float).tolist()
        return numbers if numpy.isfinite(data).all() else [n if isfinite(n) else None for n in numbers]

    def label_at(self, position):
        """What the axis says at a position: its tick's name where ticks are names, else the value."""
        if self.labels and (self.named or isinstance(self.axis.get_major_locator(), FixedLocator)):
            label = self.labels[numpy.abs(self.positions - position).argmin()]
            if label:
                return self.budget.text(label)
        return self.budget.text(self.date(position) if self.dated else "%g" % position)


def is_number(label):
    try:
        float(label.replace("\N{MINUS SIGN}", "-"))
    except ValueError:
        return False
    return True


def iso(value):
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def one_value(value):
    """One of the user's values that is no plain number: a date, a name, or a number all the same."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "start_time"):                            # a period of pandas
        return iso(value.start_time)
    if hasattr(value, "isoformat"):
        return None if type(value).__name__ == "NaTType" else iso(value)
    value = float(value)
    return value if isfinite(value) else None


def unit_of(label):
    found = UNIT.search(label or "")
    return (found[1] or found[2] or None) if found else None


def own_name(label, kind):
    """The label the user gave, or "<kind> N" for the Nth artist, which matplotlib calls _childN."""
    label = str(label)
    number = re.fullmatch(r"_(?:child|container|line|collection)?(\d+)", label)
    return "%s %s" % (kind, number[1]) if number else label


# --- what is on one axes ---

class Content:
    """The artists of one axes, sorted into what is data and what adorns it."""

    def __init__(self, ax):
        self.ax = ax
        self.names = {}                 # of artists whose container has the name
        parts = set()                   # of error bars and stems, which are no data
        for container in ax.containers:
            if isinstance(container, (ErrorbarContainer, StemContainer)):
                main = container[0]
                parts.update(id(a) for a in flatten(container[1:]))
                if main is not None:
                    self.names[id(main)] = container.get_label()
        lines = [line for line in ax.lines if id(line) not in parts and len(line.get_xdata(orig=False))]
        self.lines = [line for line in lines if line.get_transform() == ax.transData]
        self.scatters = [c for c in ax.collections if isinstance(c, PathCollection)
                         and c.get_offset_transform() == ax.transData and len(c.get_offsets())]
        self.bars = [c for c in ax.containers if isinstance(c, BarContainer) and len(c)]
        self.wedges = [p for p in ax.patches if isinstance(p, Wedge)]
        self.picture = bool(ax.images) or any(isinstance(c, QuadMesh) for c in ax.collections)
        self.empty = not (self.lines or self.picture or self.bars
                          or any(c for c in ax.collections if id(c) not in parts)
                          or any(p for p in ax.patches if p.get_data_transform() == ax.transData))

    def kind(self):
        """The kind of chart, when there is one kind of data."""
        if self.ax.name == "3d" or self.picture:
            return "unknown"
        marks = self.bars or self.scatters or self.wedges
        # Beside marks, a straight line from edge to edge is a guide.
        lines = [line for line in self.lines if not (marks and is_guide(line))]
        kinds = [kind for kind, there in (("line", lines), ("scatter", self.scatters), ("bar", self.bars),
                                          ("pie", self.wedges)) if there]
        return kinds[0] if len(kinds) == 1 else "unknown"


def flatten(parts):
    for part in parts:
        if isinstance(part, (tuple, list)):
            yield from flatten(part)
        elif part is not None:
            yield part


def is_guide(line):
    x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
    return len(x) == 2 and (x[0] == x[1] or y[0] == y[1])


# --- box plots ---

class Box:
    """One box of a box plot: its corners, then what the lines that were drawn after it say.

    matplotlib draws, in this order: the box, two whiskers from its ends, two caps if any, the
    median, the mean if any, and the outliers. position is where it stands across its values.
    """

    def __init__(self, points, upright):
        values, across = points[:, 1 if upright else 0], points[:, 0 if upright else 1]
        self.upright, self.values = upright, values
        self.position = (across.min() + across.max()) / 2
        self.near = (numpy.ptp(across) + abs(self.position)) * 1e-6

    def read(self, lines):
        """Whether the lines after it make a box plot of it."""
        if len(lines) < 3 or not self.whisker(lines[0]) or not self.whisker(lines[1]):
            return False
        (self.low, self.least), (self.high, self.most) = self.turned(lines[0])[0], self.turned(lines[1])[0]
        flat, marks = [], []
        for line in lines[2:]:
            values, across = self.turned(line)
            if len(values) and abs((across.min() + across.max()) / 2 - self.position) > self.near:
                break                                           # it stands elsewhere
            if len(values) == 2 and values[0] == values[1] and across[0] != across[1]:
                flat.append(values[0])
            else:
                marks.append(values)
        if not flat or not self.least <= self.low <= self.high <= self.most:
            return False
        self.median = flat[2] if len(flat) > 2 else flat[0]
        # A mean is marked before the outliers, and nearly always lies between the whiskers' ends.
        self.outliers = [v for v in marks[-1] if v < self.least or v > self.most] if marks else []
        return True

    def whisker(self, line):
        """Whether a line begins at an end of the box and leads straight away from it."""
        values, across = self.turned(line)
        return len(values) == 2 and values[0] in self.values and numpy.abs(across - self.position).max() <= self.near

    def turned(self, line):
        x, y = (numpy.asarray(data, float) for data in (line.get_xdata(orig=False), line.get_ydata(orig=False)))
        return (y, x) if self.upright else (x, y)


def corners(artist):
    """The points of what may be a box: a patch, or a closed line of as many points as boxes have."""
    if isinstance(artist, PathPatch):
        return artist.get_path().vertices
    if (isinstance(artist, Line2D) and len(artist.get_xdata(orig=False)) in (5, 11)
            and artist.get_linestyle().lower() not in NO_LINE):
        points = artist.get_xydata()
        if (points[0] == points[-1]).all():
            return points
    return None


def find_boxes(ax):
    artists = [a for a in ax.get_children() if isinstance(a, (Line2D, PathPatch))]
    starts = [(i, points) for i, points in enumerate(map(corners, artists)) if points is not None]
    boxes = []
    for (i, points), following in zip(starts, [i for i, _ in starts[1:]] + [len(artists)]):
        lines = artists[i + 1:min(following, i + 8)]
        for upright in (True, False):
            box = Box(points, upright)
            if box.read(lines):
                boxes.append(box)
                break
    return boxes


# --- charts ---

def axes_chart(ax, budget):
    """The chart of one axes; None when there is nothing on it."""
    content = Content(ax)
    if content.empty:
        return None
    boxes = find_boxes(ax)
    kind = "box_and_whisker" if boxes else content.kind()
    title = ax.get_title() or ax.get_title("left") or ax.get_title("right")
    chart = {"type": kind, "title": budget.title(title)}
    if kind in ("line", "scatter"):
        x, y = put_axes(chart, ax, budget)
        chart["elements"] = lines_of(content, x, y) if kind == "line" else scatters_of(content, x, y)
    elif kind in ("bar", "box_and_whisker"):
        put_axes(chart, ax, budget, upright=boxes[0].upright if boxes else upright_bars(content.bars[0]))
        chart["elements"] = boxes_of(ax, boxes, budget) if boxes else bars_of(ax, content.bars, budget)
    else:
        chart["elements"] = pie_of(content.wedges, budget) if kind == "pie" else []
    return chart


def put_axes(chart, ax, budget, upright=None):
    """Labels and units, and for points the ticks as well. Values are always on the y of a bar chart."""
    labels = [budget.title(ax.get_xlabel()), budget.title(ax.get_ylabel())]
    if upright is False:
        labels.reverse()
    for name, label in zip("xy", labels):
        chart[name + "_label"], chart[name + "_unit"] = label, unit_of(label)
    if upright is not None:
        return None
    scales = Scale(ax.xaxis, budget), Scale(ax.yaxis, budget)
    for name, scale in zip("xy", scales):
        chart.update({name + "_ticks": scale.ticks(), name + "_tick_labels": scale.labels,
                      name + "_scale": scale.name()})
    return scales


def points_of(x, y, xs, ys):
    return [list(point) for point in zip(x.budget.series(xs, x.values), y.budget.series(ys, y.values))]


def lines_of(content, x, y):
    elements = []
    for line in content.lines:
        xs, ys = line.get_xdata(orig=True), line.get_ydata(orig=True)
        if numpy.shape(xs) != numpy.shape(ys) or numpy.ndim(xs) != 1:
            xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        label = own_name(content.names.get(id(line), line.get_label()), "Line")
        elements.append({"label": x.budget.text(label), "points": points_of(x, y, xs, ys)})
    return elements


def scatters_of(content, x, y):
    return [{"label": x.budget.text(own_name(scatter.get_label(), "Scatter")),
             "points": points_of(x, y, scatter.get_offsets()[:, 0], scatter.get_offsets()[:, 1])}
            for scatter in content.scatters]


def upright_bars(container):
    """Bars of equal thickness grow along the other axis, where matplotlib does not say."""
    if container.orientation in ("vertical", "horizontal"):
        return container.orientation == "vertical"
    return len({bar.get_width() for bar in container}) <= len({bar.get_height() for bar in container})


def bars_of(ax, containers, budget):
    elements = []
    x, y = Scale(ax.xaxis, budget), Scale(ax.yaxis, budget)
    for container in containers:
        group = own_name(container.get_label(), "Group")
        upright = upright_bars(container)
        for bar in container:
            at, size, value = (bar.get_x(), bar.get_width(), bar.get_height()) if upright else (
                bar.get_y(), bar.get_height(), bar.get_width())
            elements.append({"label": (x if upright else y).label_at(float(at + size / 2)),
                             "group": budget.text(group), "value": budget.number(value)})
    return elements


def pie_of(wedges, budget):
    """matplotlib keeps angles with seven digits."""
    return [{"label": budget.text("" if str(w.get_label()).startswith("_") else w.get_label()),
             "angle": budget.number(round(float(abs(w.theta2 - w.theta1)), 4)), "radius": budget.number(w.r)}
            for w in wedges]


def boxes_of(ax, boxes, budget):
    scales = {True: Scale(ax.xaxis, budget), False: Scale(ax.yaxis, budget)}
    return [{"label": scales[box.upright].label_at(box.position), "min": budget.number(box.least),
             "first_quartile": budget.number(box.low), "median": budget.number(box.median),
             "third_quartile": budget.number(box.high), "max": budget.number(box.most),
             "outliers": [budget.number(value) for value in box.outliers]} for box in boxes]


def chart_of(figure):
    """The chart of a figure: that of its axes, or all of them in a superchart."""
    try:
        budget = Budget(MAX_UNITS)
        # A colour bar is an axes as well, but no chart.
        axes = [ax for ax in figure.axes if ax.get_visible() and not hasattr(ax, "_colorbar")]
        charts = [chart for chart in (axes_chart(ax, budget) for ax in axes) if chart]
        if len(charts) < 2:
            return charts[0] if charts else {}
        above = getattr(figure, "_suptitle", None)
        return {"type": "superchart", "title": budget.title(above.get_text() if above else ""), "elements": charts}
    except Exception:
        return {}                                               # the picture is still there
