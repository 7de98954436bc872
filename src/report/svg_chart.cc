#include "report/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "minisgl/base/check.h"
#include "minisgl/base/utf8.h"

namespace minisgl::report {
namespace {

// All lengths are in user units, which browsers show as pixels.
constexpr int kWidth = 960;
constexpr int kLeft = 68, kRight = 28;
constexpr int kPlotWidth = kWidth - kLeft - kRight;
constexpr int kPlotHeight = 120;
constexpr int kPanelHead = 40;  // above the plot: title and legend
constexpr int kPanelFoot = 26;  // below the plot: times
constexpr int kTitleHeight = 46, kLineHeight = 20;
constexpr int kSwatch = 10;
constexpr int kLegendGap = 16;
// A title is bold and larger than what TextWidth estimates.
constexpr double kTitleRoom = 1.15;

constexpr int kValueSteps = 4;
constexpr int kTimeSteps = 10;

// Titles are cut here; no display is wide enough for more.
constexpr size_t kLabelBytesMax = 160;

// Six colours that most people can tell apart, for light and for dark pages.
constexpr const char* kLight[kChartColours] = {"#0969da", "#bc4c00", "#1a7f37",
                                               "#8250df", "#bf3989", "#6e7781"};
constexpr const char* kDark[kChartColours] = {"#58a6ff", "#f0883e", "#3fb950",
                                              "#bc8cff", "#f778ba", "#9198a1"};

// Escapes `text` for XML, without control characters and characters that XML does not allow.
std::string Escaped(std::string_view text) {
  const std::string visible = Visible(text, kLabelBytesMax);
  std::string out;
  for (size_t i = 0; i < visible.size(); ++i) {
    switch (visible[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += visible[i];
    }
  }
  for (const std::string_view banned : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {
    for (size_t at = 0; (at = out.find(banned)) != std::string::npos;) {
      out.replace(at, banned.size(), 1, '?');
    }
  }
  return out;
}

std::string Colours(const char* const (&colours)[kChartColours]) {
  std::string css;
  for (int i = 0; i < kChartColours; ++i) {
    css += fmt::format(".l{0}{{stroke:{1}}}.f{0}{{fill:{1}}}", i, colours[i]);
  }
  return css;
}

std::string Style() {
  return fmt::format(
      "<style>"
      "text{{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;"
      "fill:#59636e}}"
      ".title{{font-size:18px;font-weight:600}}.name{{font-size:13px;font-weight:600}}"
      ".title,.name{{fill:#1f2328}}"
      ".page{{fill:#ffffff}}.grid{{stroke:#d1d9e0;stroke-width:1}}"
      ".line{{fill:none;stroke-width:1.6;stroke-linejoin:round}}.area{{fill-opacity:.12}}"
      "{}"
      "@media (prefers-color-scheme:dark){{"
      "text{{fill:#9198a1}}.title,.name{{fill:#f0f6fc}}.page{{fill:#0d1117}}"
      ".grid{{stroke:#2f353d}}{}}}"
      "</style>\n",
      Colours(kLight), Colours(kDark));
}

std::string Text(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, attributes,
                     Escaped(text));
}

// Upper estimate of the width of a text at 12 px, used to place legend entries.
double TextWidth(std::string_view text) { return 7.4 * static_cast<double>(text.size()); }

double Mean(const ChartSeries& series) {
  double sum = 0, before = 0;
  for (const auto& [second, value] : series.points) {
    sum += (second - before) * value;
    before = second;
  }
  return before > 0 ? sum / before : 0;
}

// Draws one panel, whose plot begins at `top_`.
class PanelDrawing {
 public:
  PanelDrawing(const ChartPanel& panel, double seconds, bool in_shares, double top,
               std::string* out)
      : panel_(panel), seconds_(seconds), in_shares_(in_shares), top_(top), out_(*out) {
    double most = 0;
    for (const ChartSeries& series : panel.series) {
      for (const auto& [second, value] : series.points) most = std::max(most, value);
    }
    ticks_ = RoundTicks(panel.top.value_or(most), kValueSteps);
  }

  void Draw() {
    const bool is_short = LegendLeft(/*is_short=*/false) < kLeft + kTitleRoom * TitleWidth();
    out_ += Text(kLeft, top_ - 12, " class=\"name\"", panel_.title + (is_short ? ", means" : ""));
    DrawLegend(is_short);
    DrawGrid();
    for (const ChartSeries& series : panel_.series) DrawSeries(series);
  }

 private:
  double X(double second) const {
    return kLeft + kPlotWidth * std::clamp(second / seconds_, 0.0, 1.0);
  }
  double Y(double value) const {
    return top_ + kPlotHeight * (1 - std::clamp(value / ticks_.back(), 0.0, 1.0));
  }

  double TitleWidth() const { return TextWidth(panel_.title); }

  static std::string LegendName(const ChartSeries& series, bool is_short) {
    const std::string name = Visible(series.name, 40);
    const std::string mean = TickLabel(series.mean.value_or(Mean(series)));
    return is_short ? name + ": " + mean : fmt::format("{} (mean {})", name, mean);
  }

  // Where the legend begins.
  double LegendLeft(bool is_short) const {
    double x = kWidth - kRight;
    for (const ChartSeries& series : panel_.series) {
      x -= TextWidth(LegendName(series, is_short)) + kSwatch + 4 + kLegendGap;
    }
    return x;
  }

  // Draws from right to left: the last series is at the right edge.
  void DrawLegend(bool is_short) {
    double x = kWidth - kRight;
    for (auto series = panel_.series.rbegin(); series != panel_.series.rend(); ++series) {
      const std::string name = LegendName(*series, is_short);
      out_ += Text(x, top_ - 12, " text-anchor=\"end\"", name);
      x -= TextWidth(name) + kSwatch + 4;
      out_ += fmt::format(
          "<rect class=\"f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"4\" rx=\"2\"/>\n",
          series->colour, x, top_ - 18, kSwatch);
      x -= kLegendGap;
    }
  }

  void DrawGrid() {
    for (const double tick : ticks_) {
      out_ +=
          fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                      kLeft, kWidth - kRight, Y(tick), Y(tick));
      const bool is_top = tick == ticks_.back();
      out_ += Text(kLeft - 8, Y(tick) + 4, " text-anchor=\"end\"", TickLabel(tick));
      if (is_top) out_ += Text(kLeft - 8, Y(tick) - 12, " text-anchor=\"end\"", panel_.unit);
    }
    for (const double time : RoundTimes(seconds_, kTimeSteps)) {
      out_ += Text(X(time), top_ + kPlotHeight + 17, " text-anchor=\"middle\"",
                   in_shares_ ? TickLabel(time) + " %" : TimeLabel(time));
    }
  }

  // A value covers the time since the previous point and is drawn at the middle of it.
  void DrawSeries(const ChartSeries& series) {
    MINISGL_CHECK(series.colour >= 0 && series.colour < kChartColours, "colour {}", series.colour);
    if (series.points.empty()) return;
    const auto& points = series.points;
    std::string path = fmt::format("{:.1f},{:.1f}", X(0), Y(points.front().second));
    double before = 0;
    for (const auto& [second, value] : points) {
      path += fmt::format(" {:.1f},{:.1f}", X((before + second) / 2), Y(value));
      before = second;
    }
    path += fmt::format(" {:.1f},{:.1f}", X(before), Y(points.back().second));
    if (panel_.series.size() == 1) {
      out_ +=
          fmt::format("<polygon class=\"area f{}\" points=\"{:.1f},{:.1f} {} {:.1f},{:.1f}\"/>\n",
                      series.colour, X(0), Y(0), path, X(before), Y(0));
    }
    out_ += fmt::format("<polyline class=\"line l{}\" points=\"{}\"/>\n", series.colour, path);
  }

  const ChartPanel& panel_;
  const double seconds_;
  const bool in_shares_;
  const double top_;
  std::string& out_;
  std::vector<double> ticks_;
};

}  // namespace

std::string TickLabel(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  // At most three significant digits: "1.25", "12.5", "125".
  const int digits = value == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text + kUnits[unit];
}

std::string TimeLabel(double seconds) {
  if (seconds < 60) return TickLabel(seconds) + " s";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = total / 86400, hours = total % 86400 / 3600, minutes = total % 3600 / 60;
  std::string text;
  if (days > 0) text += fmt::format("{}d", days);
  if (hours > 0) text += fmt::format("{}h", hours);
  if (minutes > 0) text += fmt::format("{}m", minutes);
  if (total % 60 > 0) text += fmt::format("{}s", total % 60);
  return text;
}

std::vector<double> RoundTicks(double most, int count) {
  // A scale from 0 to 0 would have no height.
  const double range = most > 0 ? most : 1;
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power * count >= range * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < range * (1 - 1e-9)) {
    ticks.push_back(step * static_cast<double>(ticks.size()));
  }
  return ticks;
}

std::vector<double> RoundTimes(double seconds, int count) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 86400;
  double step = 0;
  if (seconds / count <= 10) {  // includes steps of tenths of a second and less
    const std::vector<double> ticks = RoundTicks(seconds, count);
    step = ticks[1];
  } else {
    constexpr double kSteps[] = {15,           30,           kMinute,      2 * kMinute, 5 * kMinute,
                                 10 * kMinute, 15 * kMinute, 30 * kMinute, kHour,       2 * kHour,
                                 3 * kHour,    6 * kHour,    12 * kHour,   kDay};
    const auto found = std::find_if(std::begin(kSteps), std::end(kSteps),
                                    [&](double s) { return s * count >= seconds; });
    step = found != std::end(kSteps) ? *found : kDay * RoundTicks(seconds / kDay, count)[1];
  }
  std::vector<double> times;
  for (int i = 0; i <= count && i * step <= seconds * (1 + 1e-9); ++i) times.push_back(i * step);
  return times;
}

std::string DrawSvg(const Chart& chart) {
  const auto head = kTitleHeight + kLineHeight * static_cast<int>(chart.lines.size());
  const int panel_height = kPanelHead + kPlotHeight + kPanelFoot;
  const int height = head + panel_height * static_cast<int>(chart.panels.size()) + 14;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{2}</title>\n",
      kWidth, height, Escaped(chart.title));
  out += Style();
  out += "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
  out += Text(24, 34, " class=\"title\"", chart.title);
  double y = kTitleHeight + 10;
  for (const ChartLine& line : chart.lines) {
    double x = 24;
    if (line.colour) {
      out += fmt::format("<circle class=\"f{}\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\n", *line.colour,
                         x + 4, y - 4);
      x += 14;
    }
    out += Text(x, y, "", line.text);
    y += kLineHeight;
  }
  double top = head + kPanelHead;
  // A run that took no time still needs an axis.
  const double seconds = chart.seconds > 0 ? chart.seconds : 1;
  for (const ChartPanel& panel : chart.panels) {
    PanelDrawing(panel, seconds, chart.in_shares, top, &out).Draw();
    top += panel_height;
  }
  return out + "</svg>\n";
}

}  // namespace minisgl::report
