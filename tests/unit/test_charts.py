"""Tests of src/engine/charts.py: what E2B's `chart` says of figures that matplotlib and pandas draw."""
import datetime
import json
import sys
import unittest
import warnings
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "src/engine"), str(TOP / "tests")]
sys.dont_write_bytecode = True

import matplotlib

matplotlib.use("agg")

import charts
import matplotlib.dates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tap


def draw(*calls, **kw):
    """A figure with one axes, on which each of the calls was made: (name, *args, {keywords})."""
    figure, ax = plt.subplots(**kw)
    for name, *args in calls:
        keywords = args.pop() if args and isinstance(args[-1], dict) else {}
        getattr(ax, name)(*args, **keywords)
    return figure


def label_points(chart):
    return [(e["label"], e["points"]) for e in chart["elements"]]


def bars(chart):
    return [(e["group"], e["label"], e["value"]) for e in chart["elements"]]


class Charts(unittest.TestCase):
    def tearDown(self):
        plt.close("all")

    def chart(self, figure, drawn=True):
        """The chart, which must be plain JSON and must not have changed the figure's limits."""
        if drawn:
            figure.canvas.draw()
        before = [ax.axis() for ax in figure.axes if ax.name != "3d"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            chart = charts.chart_of(figure)
        self.assertEqual(json.loads(json.dumps(chart, allow_nan=False)), chart)
        self.assertEqual([ax.axis() for ax in figure.axes if ax.name != "3d"], before)
        return chart

    # --- lines ---

    def test_line(self):
        chart = self.chart(draw(("plot", [1, 2, 3], [10, 20, 30], {"label": "ten"}), ("plot", [1, 2], [1, 2]),
                                ("set_title", "Title"), ("set_xlabel", "Time (s)"), ("set_ylabel", "Voltage [mV]"),
                                ("set_xticks", [1, 2, 3]), ("set_yticks", [0, 30], ["none", "all"])))
        self.assertEqual(chart, {
            "type": "line", "title": "Title",
            "x_label": "Time (s)", "x_unit": "s", "y_label": "Voltage [mV]", "y_unit": "mV",
            "x_ticks": [1, 2, 3], "x_tick_labels": ["1", "2", "3"], "x_scale": "linear",
            "y_ticks": [0, 30], "y_tick_labels": ["none", "all"], "y_scale": "linear",
            "elements": [{"label": "ten", "points": [[1, 10], [2, 20], [3, 30]]},
                         {"label": "Line 1", "points": [[1, 1], [2, 2]]}]})

    def test_labels_and_units_that_are_not_there(self):
        chart = self.chart(draw(("plot", [1, 2])))
        self.assertEqual({k: chart[k] for k in ("title", "x_label", "y_label", "x_unit", "y_unit")},
                         dict.fromkeys(("title", "x_label", "y_label", "x_unit", "y_unit")))
        for label, unit in (("speed (m/s)", "m/s"), ("f(x)", None), ("[kg]", "kg"), ("a () b", None), ("(s)", None)):
            self.assertEqual(self.chart(draw(("plot", [1, 2]), ("set_xlabel", label)))["x_unit"], unit, label)

    def test_title_at_the_side(self):
        self.assertEqual(self.chart(draw(("plot", [1]), ("set_title", "left", {"loc": "left"})))["title"], "left")

    def test_values_that_are_no_numbers(self):
        data = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
        chart = self.chart(draw(("plot", [1, 2, 3], [1, float("nan"), float("inf")]), ("plot", [1, 2, 3], data)))
        self.assertEqual([e["points"] for e in chart["elements"]],
                         [[[1, 1], [2, None], [3, None]], [[1, 1], [2, None], [3, 3]]])

    def test_guides_are_no_lines(self):
        for guide in ("axhline", "axvline"):
            chart = self.chart(draw(("plot", [1, 2], [3, 4]), (guide, 2), ("axvspan", 1, 2), ("grid", True)))
            self.assertEqual((chart["type"], len(chart["elements"])), ("line", 1))
        self.assertEqual(len(self.chart(draw(("plot", [1, 2], [3, 3])))["elements"]), 1, "a flat line of data is one")

    def test_error_bars_stems_and_bands(self):
        chart = self.chart(draw(("errorbar", [1, 2], [3, 4], {"yerr": 0.1, "label": "E", "capsize": 3})))
        self.assertEqual((chart["type"], label_points(chart)), ("line", [("E", [[1, 3], [2, 4]])]))
        chart = self.chart(draw(("stem", [1, 2], [3, 4])))
        self.assertEqual((chart["type"], [p for _, p in label_points(chart)]), ("line", [[[1, 3], [2, 4]]]))
        self.assertEqual(self.chart(draw(("plot", [1, 2]), ("fill_between", [0, 1], [0, 0], [1, 2])))["type"], "line")

    def test_scales(self):
        for scale in ("linear", "log", "symlog", "logit", "asinh"):
            chart = self.chart(draw(("plot", [0.1, 0.2], [0.3, 0.4]), ("set_xscale", scale), ("set_yscale", scale)))
            self.assertEqual((chart["x_scale"], chart["y_scale"]), (scale, scale))
        chart = self.chart(draw(("plot", [1, 2]), ("set_yscale", "function", {"functions": (np.sqrt, np.square)})))
        self.assertEqual(chart["y_scale"], "function")

    def test_categories(self):
        chart = self.chart(draw(("plot", ["a", "b"], [1, 2])))
        self.assertEqual((chart["x_scale"], chart["x_ticks"], chart["x_tick_labels"]), ("categorical", [0, 1], ["a", "b"]))
        self.assertEqual(chart["elements"][0]["points"], [["a", 1], ["b", 2]])
        named = self.chart(draw(("plot", [0, 1], [1, 2]), ("set_xticks", [0, 1], ["l", "r"])))
        self.assertEqual(named["x_scale"], "categorical")
        for labels in (["0", "1"], ["0.0", "1.0"], ["", ""]):
            self.assertEqual(self.chart(draw(("plot", [0, 1]), ("set_xticks", [0, 1], labels)))["x_scale"], "linear")

    # --- dates ---

    def test_dates(self):
        days = [datetime.datetime(2024, 2, 28, 12) + datetime.timedelta(days=i) for i in range(3)]
        texts = ["2024-02-28T12:00:00", "2024-02-29T12:00:00", "2024-03-01T12:00:00"]
        for x in (days, np.array(days, "datetime64[ns]"), pd.Series(days), [pd.Timestamp(d) for d in days]):
            for call in ("plot", "scatter"):
                chart = self.chart(draw((call, x, [1, 2, 3])))
                self.assertEqual((chart["x_scale"], [p[0] for p in chart["elements"][0]["points"]]), ("datetime", texts))
                for tick in chart["x_ticks"]:
                    self.assertIsNotNone(datetime.datetime.fromisoformat(tick).tzinfo)
        chart = self.chart(draw(("plot", [d.date() for d in days], [1, 2, 3])))
        self.assertEqual(chart["elements"][0]["points"][0], ["2024-02-28", 1])

    def test_dates_with_a_zone(self):
        zone = datetime.timezone(datetime.timedelta(hours=2))
        for call in ("plot", "scatter"):
            chart = self.chart(draw((call, [datetime.datetime(2024, 1, 1, h, tzinfo=zone) for h in (1, 2)], [1, 2])))
            self.assertEqual(chart["elements"][0]["points"][0][0], "2024-01-01T01:00:00+02:00")

    def test_dates_as_matplotlib_counts_them(self):
        numbers = matplotlib.dates.date2num([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 3)])
        figure = draw(("plot", numbers, [1, 2]))
        figure.axes[0].xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%d"))
        chart = self.chart(figure)
        self.assertEqual((chart["x_scale"], chart["elements"][0]["points"][1]), ("datetime", ["2024-01-03T00:00:00", 2]))

    def test_missing_dates(self):
        x = np.array(["2024-01-01", "NaT", "2024-01-03"], "datetime64[s]")
        self.assertEqual([p[0] for p in self.chart(draw(("plot", x, [1, 2, 3])))["elements"][0]["points"]],
                         ["2024-01-01T00:00:00", None, "2024-01-03T00:00:00"])

    def test_series_of_pandas(self):
        for freq, first in (("D", "2024-01-01T00:00:00"), ("M", "2024-01-01T00:00:00")):
            series = pd.Series([1.0, 2.0, 3.0], index=pd.period_range("2024-01-01", periods=3, freq=freq), name="S")
            chart = self.chart(series.plot(legend=True).figure)
            self.assertEqual((chart["type"], chart["x_scale"], chart["elements"][0]["label"]), ("line", "datetime", "S"))
            self.assertEqual(chart["elements"][0]["points"][0], [first, 1.0])
            self.assertTrue(all(t.startswith("2024-") for t in chart["x_ticks"]), chart["x_ticks"])
            plt.close("all")

    # --- scatter ---

    def test_scatter(self):
        chart = self.chart(draw(("scatter", [1, 2], [3, 4], {"label": "one"}), ("scatter", [5], [float("nan")]),
                                ("set_title", "S")))
        self.assertEqual((chart["type"], chart["title"]), ("scatter", "S"))
        self.assertEqual(label_points(chart), [("one", [[1, 3], [2, 4]]), ("Scatter 1", [[None, None]])])
        self.assertEqual(self.chart(draw(("scatter", ["a", "b"], [1, 2])))["elements"][0]["points"], [["a", 1], ["b", 2]])

    def test_a_colour_bar_is_no_chart(self):
        figure = draw()
        figure.colorbar(figure.axes[0].scatter([1, 2], [3, 4], c=[5, 6]))
        self.assertEqual(self.chart(figure)["type"], "scatter")

    # --- bars ---

    def test_bar(self):
        chart = self.chart(draw(("bar", ["a", "b"], [1, -2], {"label": "G"}), ("set_xlabel", "x"), ("set_ylabel", "y (m)")))
        self.assertEqual(chart, {"type": "bar", "title": None, "x_label": "x", "x_unit": None, "y_label": "y (m)",
                                 "y_unit": "m", "elements": [{"label": "a", "group": "G", "value": 1},
                                                             {"label": "b", "group": "G", "value": -2}]})

    def test_bars_that_lie(self):
        chart = self.chart(draw(("barh", ["a", "b"], [1, 2]), ("set_xlabel", "length (m)"), ("set_ylabel", "name")))
        self.assertEqual((chart["x_label"], chart["x_unit"], chart["y_label"], chart["y_unit"]),
                         ("name", None, "length (m)", "m"), "values are always on y")
        self.assertEqual(bars(chart), [("Group 0", "a", 1), ("Group 0", "b", 2)])
        self.assertEqual(self.chart(draw(("barh", ["a", "b"], [2, 2])))["elements"][0]["value"], 2, "equal ones too")
        self.assertEqual(self.chart(draw(("bar", ["a", "b"], [3, 3])))["elements"][0]["value"], 3)

    def test_groups_and_stacks(self):
        frame = pd.DataFrame({"p": [1, 2], "q": [3, 4]}, index=["i", "j"])
        expected = [("p", "i", 1), ("p", "j", 2), ("q", "i", 3), ("q", "j", 4)]
        for plot in (frame.plot.bar, frame.plot.barh):
            for stacked in (False, True):
                self.assertEqual(bars(self.chart(plot(stacked=stacked).figure)), expected)
        at = np.arange(2)
        chart = self.chart(draw(("bar", at - 0.2, [1, 2], 0.4, {"label": "p"}), ("bar", at + 0.2, [3, 4], 0.4, {"label": "q"}),
                                ("set_xticks", at, ["i", "j"])))
        self.assertEqual(bars(chart), expected)

    def test_bars_at_numbers_dates_and_with_adornment(self):
        chart = self.chart(draw(("bar", [1.3, 2.7], [1, float("nan")], {"yerr": 0.1}), ("axhline", 1), ("plot", [1, 3], [2, 2])))
        self.assertEqual([(e["label"], e["value"]) for e in chart["elements"]], [("1.3", 1), ("2.7", None)])
        chart = self.chart(draw(("bar", [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])))
        self.assertEqual([e["label"] for e in chart["elements"]], ["2024-01-01T00:00:00", "2024-01-02T00:00:00"])

    def test_a_histogram_is_bars(self):
        chart = self.chart(draw(("hist", [1, 1, 2, 4], {"bins": [1, 2, 3, 5]})))
        self.assertEqual(bars(chart), [("Group 0", "1.5", 2), ("Group 0", "2.5", 1), ("Group 0", "4", 1)])

    # --- pies ---

    def test_pie(self):
        chart = self.chart(draw(("pie", [90, 10], {"labels": ["No", "Yes"], "autopct": "%1.1f%%", "startangle": 90,
                                                   "shadow": True, "radius": 2}), ("set_title", "P")))
        self.assertEqual(chart, {"type": "pie", "title": "P", "elements": [{"label": "No", "angle": 324, "radius": 2},
                                                                         {"label": "Yes", "angle": 36, "radius": 2}]})
        chart = self.chart(draw(("pie", [1, 1, 1], {"counterclock": False})))
        self.assertEqual([(e["label"], e["angle"]) for e in chart["elements"]], [("", 120)] * 3)

    # --- box plots ---

    def test_box_plots_however_they_are_drawn(self):
        data = [[85, 90, 78, 92, 88, 200, 210], [95, 89, 76, 91, 84, 87], [5]]
        expected = [("A", 78, 86.5, 90, 146, 210, []), ("B", 84, 84.75, 88, 90.5, 95, [76]), ("C", 5, 5, 5, 5, 5, [])]
        for style in ({}, {"patch_artist": True}, {"notch": True}, {"notch": True, "patch_artist": True}, {"showmeans": True},
                      {"showmeans": True, "meanline": True}, {"showcaps": False}, {"vert": False},
                      {"vert": False, "patch_artist": True, "positions": [2, 4.5, 7], "widths": 0.1}):
            with self.subTest(style):
                chart = self.chart(draw(("boxplot", data, {"labels": ["A", "B", "C"], **style}), ("set_ylabel", "(m) y")))
                self.assertEqual(chart["type"], "box_and_whisker")
                self.assertEqual(chart["x_label" if style.get("vert") is False else "y_label"], "(m) y")
                self.assertEqual([tuple(e[k] for k in ("label", "min", "first_quartile", "median", "third_quartile", "max",
                                                       "outliers")) for e in chart["elements"]], expected)

    def test_outliers(self):
        data = list(range(50)) + [900, 900, 800, -400, 900]
        chart = self.chart(draw(("boxplot", [data, data]), ("axhline", 3)))
        self.assertEqual([sorted(e["outliers"]) for e in chart["elements"]], [[-400, 800, 900, 900, 900]] * 2)
        self.assertEqual(self.chart(draw(("boxplot", [data], {"sym": ""})))["elements"][0]["outliers"], [])

    def test_box_plots_of_pandas(self):
        chart = self.chart(pd.DataFrame({"a": [1, 2, 3], "b": [2, 3, 4]}).plot.box().figure)
        self.assertEqual([(e["label"], e["median"]) for e in chart["elements"]], [("a", 2), ("b", 3)])

    def test_a_rectangle_is_no_box_plot(self):
        chart = self.chart(draw(("plot", [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]), ("plot", [1, 2], [3, 4])))
        self.assertEqual((chart["type"], len(chart["elements"])), ("line", 2))

    # --- several, none, and what has no kind ---

    def test_several_axes(self):
        figure, ax = plt.subplots(2, 2)
        figure.suptitle("All")
        ax[0, 0].plot([1, 2])
        ax[0, 1].bar(["a"], [2])
        ax[1, 0].pie([1])
        chart = self.chart(figure)
        self.assertEqual((chart["type"], chart["title"], [c["type"] for c in chart["elements"]]),
                         ("superchart", "All", ["line", "bar", "pie"]), "an empty one is left out")

    def test_twin_axes(self):
        figure = draw(("plot", [1, 2]), ("set_ylabel", "left"))
        twin = figure.axes[0].twinx()
        twin.bar([0, 1], [3, 4])
        twin.set_ylabel("right")
        chart = self.chart(figure)
        self.assertEqual((chart["type"], chart["title"]), ("superchart", None))
        self.assertEqual([(c["type"], c["y_label"]) for c in chart["elements"]], [("line", "left"), ("bar", "right")])

    def test_nothing(self):
        self.assertEqual(self.chart(plt.figure()), {})
        self.assertEqual(self.chart(draw()), {})
        self.assertEqual(self.chart(draw(("plot", [], []))), {})
        self.assertEqual(self.chart(draw(("text", 0.5, 0.5, "words"), ("legend", [], []))), {})

    def test_unknown(self):
        for call in (("imshow", [[1, 2]]), ("pcolormesh", [[1, 2], [3, 4]]), ("contourf", [[1, 2], [3, 4]]),
                     ("fill_between", [0, 1], [1, 2]), ("violinplot", [[1, 2, 3]]), ("add_patch", plt.Circle((0, 0), 1))):
            self.assertEqual(self.chart(draw(call, ("set_title", "U"))), {"type": "unknown", "title": "U", "elements": []}, call)
        mixed = self.chart(draw(("plot", [1, 2, 3]), ("scatter", [1], [2])))
        self.assertEqual((mixed["type"], mixed["elements"]), ("unknown", []))
        figure = plt.figure()
        figure.add_subplot(projection="3d").plot([1], [2], [3])
        self.assertEqual(self.chart(figure)["type"], "unknown")

    def test_a_figure_that_was_not_drawn_yet(self):
        chart = self.chart(draw(("plot", [1, 2, 3])), drawn=False)
        self.assertEqual(len(chart["x_ticks"]), len(chart["x_tick_labels"]))
        self.assertTrue(all(chart["x_tick_labels"]))

    # --- bounds and harm ---

    def test_bounds(self):
        self.assertEqual(len(self.chart(draw(("plot", np.arange(100_000))))["elements"][0]["points"]), 100_000)
        self.assertEqual(self.chart(draw(("plot", np.arange(1_000_000)))), {})
        self.assertEqual(len(self.chart(draw(("plot", [1]), ("set_title", "t" * 5000)), drawn=False)["title"]), 1000)
        self.assertEqual(self.chart(draw(*[("plot", [1], {"label": "x" * 1000})] * 1100), drawn=False), {})

    def test_never_raises(self):
        class Evil:
            def __getattr__(self, name):
                raise RuntimeError(name)

            def __str__(self):
                raise RuntimeError

        figure = draw(("plot", [1, 2]))
        figure.axes[0].xaxis.set_major_formatter(lambda value, at: 1 / 0)
        self.assertEqual(charts.chart_of(figure), {})
        figure = draw(("plot", [1, 2]))
        figure.axes[0].lines[0].get_label = lambda: Evil()
        self.assertEqual(charts.chart_of(figure), {})
        for thing in (Evil(), None, 3):
            self.assertEqual(charts.chart_of(thing), {})


if __name__ == "__main__":
    tap.run(sys.modules[__name__])
