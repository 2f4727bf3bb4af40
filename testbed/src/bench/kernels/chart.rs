//! Chart of the figures, with a bar for each kernel and one for each part outside of kernels.

use anyhow::{Result, anyhow};
use plotters::prelude::{
    BLACK, Color, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::Figures;

/// Width of the chart, and of its columns, in pixels.
const WIDTH: u32 = 1120;
const LABELS: i32 = 540;
const BARS: i32 = 330;
/// Height in pixels of a bar with the gap below it, and of the title.
const LINE: i32 = 20;
const TITLE: i32 = 70;
/// Font size of the text, of which the drawing library's letters take four fifths.
const SIZE: i32 = 15;
/// Maximum number of kernels with a bar of their own. All others share one bar.
const KERNELS: usize = 20;

const TRANSLATED: RGBColor = RGBColor(0x4c, 0x78, 0xa8);
const INTERPRETED: RGBColor = RGBColor(0xe4, 0x57, 0x56);
const OUTSIDE: RGBColor = RGBColor(0x9d, 0x9d, 0x9d);

/// A bar of the chart, for one kernel.
struct Bar {
    label: String,
    ms: f64,
    /// Text behind the bar, besides the time.
    more: String,
    color: RGBColor,
}

/// Formats a number of launches with its noun.
fn launches(count: f64) -> String {
    format!("{count:.0} {}", if count > 1.0 { "launches" } else { "launch" })
}

/// Returns the bars from top to bottom.
fn bars(figures: &Figures) -> Vec<Bar> {
    let report = &figures.report;
    let own = report.kernels.len().min(KERNELS);
    let mut bars: Vec<Bar> = report.kernels[..own]
        .iter()
        .map(|kernel| Bar {
            label: format!("{}, {} of {}", kernel.name, kernel.most_blocks, kernel.threads),
            ms: kernel.ms,
            more: format!("{:.1} %, {}", 100.0 * kernel.share, launches(kernel.launches)),
            color: if kernel.interpreted > 0.0 { INTERPRETED } else { TRANSLATED },
        })
        .collect();
    let rest = &report.kernels[own..];
    if !rest.is_empty() {
        bars.push(Bar {
            label: format!("{} others", rest.len()),
            ms: rest.iter().map(|kernel| kernel.ms).sum(),
            more: launches(rest.iter().map(|kernel| kernel.launches).sum()),
            color: TRANSLATED,
        });
    }
    let outside = |label: &str, ms| Bar { label: label.to_owned(), ms, more: String::new(), color: OUTSIDE };
    let outer = &report.outside;
    bars.push(outside("copies, fills, products", outer.tasks.values().map(|task| task.ms).sum()));
    bars.push(outside("carrying out messages", outer.dispatch_ms));
    bars.push(outside("the guest, and the way to the device", outer.client_ms));
    bars
}

/// Returns a label, shortened to fit its column.
fn fitting(label: &str) -> String {
    const MOST: usize = 72;
    if label.chars().count() <= MOST {
        return label.to_owned();
    }
    let (start, end) = (MOST * 2 / 3, MOST / 3 - 1);
    let letters: Vec<char> = label.chars().collect();
    letters[..start].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
}

/// Draws the chart as SVG.
pub fn draw(figures: &Figures) -> Result<String> {
    let bars = bars(figures);
    let height = TITLE + LINE * bars.len() as i32 + LINE / 2;
    let longest = bars.iter().map(|bar| bar.ms).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = String::new();
    let failed = |error: &dyn std::fmt::Display| anyhow!("draw the chart: {error}");
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let text = |text: String, at: (i32, i32), size: i32, across: HPos| {
            let style = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(across, VPos::Center));
            area.draw(&Text::new(text, at, style)).map_err(|error| failed(&error))
        };
        for (line, words) in titles(figures).into_iter().enumerate() {
            text(words, (12, 18 + LINE * line as i32), SIZE + 4 - 4 * line.min(1) as i32, HPos::Left)?;
        }
        for (index, bar) in bars.iter().enumerate() {
            let top = TITLE + LINE * index as i32;
            let middle = top + LINE / 2;
            text(fitting(&bar.label), (LABELS - 8, middle), SIZE, HPos::Right)?;
            let end = LABELS + (f64::from(BARS) * bar.ms / longest).round() as i32;
            let shape = Rectangle::new(
                [(LABELS, top + 2), (end.max(LABELS + 1), top + LINE - 3)],
                bar.color.filled(),
            );
            area.draw(&shape).map_err(|error| failed(&error))?;
            let figure = format!("{:.2} ms", bar.ms);
            let words = if bar.more.is_empty() { figure } else { format!("{figure}, {}", bar.more) };
            text(words, (end + 6, middle), SIZE, HPos::Left)?;
        }
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

/// Returns the title and subtitle of the chart.
fn titles(figures: &Figures) -> [String; 2] {
    let report = &figures.report;
    let model = figures.model.file_stem().map(|name| name.to_string_lossy().into_owned());
    let engine = figures.engine.map(|engine| format!(", engine {engine}")).unwrap_or_default();
    [
        format!(
            "A token of {}: {:.1} ms, of which {:.1} ms in kernels",
            model.unwrap_or_default(),
            report.token_ms,
            report.kernels_ms
        ),
        format!(
            "Compute capability {}{engine}; {} × {}; medians of {} tokens; {:.0} of {:.0} launches interpreted (red)",
            figures.cc,
            figures.processors,
            figures.processor,
            report.tokens,
            report.fallbacks.interpreted,
            report.fallbacks.launches
        ),
    ]
}
