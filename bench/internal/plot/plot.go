// Package plot draws the two kinds of figures that the benchmarks need, as SVG.
package plot

import (
	"fmt"
	"html"
	"math"
	"os"
	"strings"
)

// Point is one of a line; both coordinates are positive.
type Point struct{ X, Y float64 }

// Line has the points of one contender.
type Line struct {
	Label  string
	Points []Point
	Dashed bool
}

const (
	width, height = 960.0, 560.0
	left, right   = 80.0, 300.0 // margins; the legend is to the right
	top, bottom   = 50.0, 60.0
)

// colours are distinguishable on white, also for most colour-blind people. If there are
// more lines than colours, the order of the legend distinguishes them.
var colours = []string{
	"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
}

// smallest is the lowest value that is drawn: zero has no logarithm.
const smallest = 1e-3

// scale maps logarithms to pixels.
type scale struct{ low, high, from, to float64 }

func newScale(values []float64, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		v = max(v, smallest)
		low, high = min(low, math.Log10(v)), max(high, math.Log10(v))
	}
	low, high = math.Floor(low), math.Ceil(high)
	return scale{low, max(high, low+1), from, to}
}

func (s scale) at(v float64) float64 {
	return s.from + (math.Log10(max(v, smallest))-s.low)/(s.high-s.low)*(s.to-s.from)
}

// decades are the powers of ten that the scale shows.
func (s scale) decades() []float64 {
	var list []float64
	for e := s.low; e <= s.high; e++ {
		list = append(list, math.Pow(10, e))
	}
	return list
}

// picture collects the elements.
type picture struct{ strings.Builder }

func newPicture(title string, height float64) *picture {
	p := &picture{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="13">`, width, height)
	p.add(`<rect width="100%%" height="100%%" fill="white"/>`)
	p.text(width/2-right/2+left/2, 28, "middle", title)
	return p
}

func (p *picture) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *picture) text(x, y float64, anchor, words string) {
	p.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(words))
}

func (p *picture) line(x1, y1, x2, y2 float64, style string) {
	p.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, style)
}

func (p *picture) save(path string) error {
	p.add(`</svg>`)
	return os.WriteFile(path, []byte(p.String()), 0o644)
}

const gridStyle = `stroke="#ddd"`

// Lines draws lines over two logarithmic axes. Nothing is written if there are no
// points.
func Lines(path, title, xName, yName string, lines []Line) error {
	var xs, ys []float64
	seen := make(map[float64]bool)
	for _, l := range lines {
		for _, p := range l.Points {
			seen[p.X] = true
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	p := newPicture(title, height)
	x, y := newScale(xs, left, width-right), newScale(ys, height-bottom, top)
	for v := range seen {
		p.line(x.at(v), height-bottom, x.at(v), top, gridStyle)
		p.text(x.at(v), height-bottom+20, "middle", number(v))
	}
	for _, v := range y.decades() {
		p.line(left, y.at(v), width-right, y.at(v), gridStyle)
		p.text(left-8, y.at(v)+4, "end", number(v))
	}
	p.text((left+width-right)/2, height-15, "middle", xName)
	p.add(`<text transform="translate(18 %g) rotate(-90)" text-anchor="middle">%s</text>`, height/2, html.EscapeString(yName))
	for i, l := range lines {
		p.curve(i, l, x, y)
	}
	return p.save(path)
}

func (p *picture) curve(i int, l Line, x, y scale) {
	style := fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2"`, colours[i%len(colours)])
	if l.Dashed {
		style += ` stroke-dasharray="6 4"`
	}
	var points []string
	for _, at := range l.Points {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(at.X), y.at(at.Y)))
		p.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(at.X), y.at(at.Y), colours[i%len(colours)])
	}
	p.add(`<polyline points="%s" %s/>`, strings.Join(points, " "), style)
	row := top + 20*float64(i)
	p.line(width-right+20, row, width-right+50, row, style)
	p.text(width-right+58, row+4, "start", l.Label)
}

// Range is a span of one contender's latencies.
type Range struct {
	Label    string
	P50, P99 float64 // positive
}

// Ranges draws spans over one logarithmic axis, a row each. Nothing is written if
// there are none.
func Ranges(path, title, name string, ranges []Range) error {
	if len(ranges) == 0 {
		return nil
	}
	const row, labels = 24.0, 260.0
	high := top + row*float64(len(ranges)) + bottom
	var values []float64
	for _, r := range ranges {
		values = append(values, r.P50, r.P99)
	}
	p := newPicture(title, high)
	x := newScale(values, labels, width-40)
	for _, v := range x.decades() {
		p.line(x.at(v), top-5, x.at(v), high-bottom, gridStyle)
		p.text(x.at(v), high-bottom+18, "middle", number(v))
	}
	p.text((labels+width)/2, high-15, "middle", name)
	for i, r := range ranges {
		y := top + row*(float64(i)+0.5)
		p.text(labels-10, y+4, "end", r.Label)
		p.line(x.at(r.P50), y, x.at(r.P99), y, `stroke="#1f77b4" stroke-width="4"`)
		p.add(`<circle cx="%.1f" cy="%.1f" r="6" fill="#1f77b4"/>`, x.at(r.P50), y)
		p.add(`<circle cx="%.1f" cy="%.1f" r="4" fill="#d62728"/>`, x.at(r.P99), y)
	}
	return p.save(path)
}

// number writes thousands with commas.
func number(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%g", v)
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
