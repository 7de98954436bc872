// Curves over time as one SVG: panels below each other on one time axis, each with a scale of round
// numbers of its own.
//
// The picture needs nothing beside itself (no script, no font, no other file) and is drawn for a
// light and a dark page. Texts may hold anything: they are escaped. Thread-safe (no state).
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
  std::optional<double> mean = {};  // as the legend says it; unset: that of the points over time
};
inline constexpr int kChartColours = 6;

struct ChartPanel {
  std::string title;
  std::string unit;  // "tokens/s"
  std::vector<ChartSeries> series;
  std::optional<double> top;  // of the scale, where the data is not to decide
};

struct ChartLine {
  std::string text;
  std::optional<int> colour;  // of the dot before it
};

struct Chart {
  std::string title;
  std::vector<ChartLine> lines;  // below the title
  double seconds = 0;            // how far the time axis reaches
  std::vector<ChartPanel> panels;
};

std::string DrawSvg(const Chart& chart);

// Round numbers from 0 on, at most `count` steps, the last not below `most`.
std::vector<double> RoundTicks(double most, int count);
// Round times from 0 on that `seconds` has room for, at most `count` steps.
std::vector<double> RoundTimes(double seconds, int count);
// "0", "250", "1.5k", "20M"
std::string TickLabel(double value);
// "12 s", "0.5 s", "2m30s", "10m", "1h30m", "2d"
std::string TimeLabel(double seconds);

}  // namespace minisgl::report
