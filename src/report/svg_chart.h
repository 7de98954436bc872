// Draws curves over time as an SVG: panels one below the other with a common time axis, each with
// its own scale of round numbers.
//
// The picture is self-contained (no scripts, fonts or other files) and adapts to light and dark
// pages. Texts may contain anything: they are escaped. Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace minisgl::report {

struct ChartSeries {
  std::string name;
  int colour = 0;                                 // below kChartColours
  std::vector<std::pair<double, double>> points;  // (second, value >= 0), seconds ascending
  // for the legend; unset: computed from the points, weighted by time
  std::optional<double> mean = {};
};
inline constexpr int kChartColours = 6;

struct ChartPanel {
  std::string title;
  std::string unit;  // "tokens/s"
  std::vector<ChartSeries> series;
  std::optional<double> top;  // upper end of the scale; unset: from the data
};

struct ChartLine {
  std::string text;
  std::optional<int> colour;  // of the dot before the text
};

struct Chart {
  std::string title;
  std::vector<ChartLine> lines;  // below the title
  double seconds = 0;            // end of the time axis
  // The axis is one of shares: points are in percent of each run's time, and `seconds` is 100.
  bool in_shares = false;
  std::vector<ChartPanel> panels;
};

std::string DrawSvg(const Chart& chart);

// Returns round numbers from 0 on, at most `count` steps; the last is at least `most`.
std::vector<double> RoundTicks(double most, int count);
// Returns round times from 0 up to at most `seconds`, at most `count` steps.
std::vector<double> RoundTimes(double seconds, int count);
// "0", "250", "1.5k", "20M"
std::string TickLabel(double value);
// "12 s", "0.5 s", "2m30s", "10m", "1h30m", "2d"
std::string TimeLabel(double seconds);

}  // namespace minisgl::report
