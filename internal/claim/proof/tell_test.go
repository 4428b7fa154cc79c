package proof

import (
	"fmt"
	"strings"
)

// view is a state of an example, for people.
type view struct {
	of     map[string]string
	suffix string // of what its variables are named
}

// tell describes an example: the state before a step, the step, and the state after it.
func tell(of map[string]string, action string, params []parameter) string {
	var b strings.Builder
	before := view{of, ""}.lines()
	fmt.Fprintf(&b, "    before: %s\n", strings.Join(before, "\n            "))
	if action == "" {
		return b.String()
	}
	var args []string
	for _, p := range params {
		args = append(args, p.name+" = "+of[p.name])
	}
	fmt.Fprintf(&b, "    step:   %s\n", strings.Join(append([]string{action}, args...), ", "))
	was := make(map[string]bool)
	for _, l := range before {
		was[l] = true
	}
	var now []string
	for _, l := range (view{of, "!"}).lines() {
		if !was[l] {
			now = append(now, l)
		}
	}
	fmt.Fprintf(&b, "    after:  %s\n", strings.Join(now, "\n            "))
	return b.String()
}

func (s view) value(name, of string) string {
	if of == "" {
		return s.of[name+s.suffix]
	}
	return s.of["("+name+s.suffix+" "+of+")"]
}

// lines say what there is.
func (s view) lines() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	v := func(name string) string { return s.value(name, "") }
	add("now %s, version %s, the highest ever %s, %s claims are counted that hold", v("now"), v("version"), v("top"), v("holding"))
	lines = append(lines, s.holders("")...)
	for _, l := range s.holders("flushed.") {
		lines = append(lines, "on the disk: "+l)
	}
	if v("stranger") == "true" {
		add("a stranger has locked the row")
	}
	for _, a := range elements["Acq"] {
		lines = append(lines, s.client(a)...)
	}
	for _, r := range elements["Req"] {
		lines = append(lines, s.request(r)...)
	}
	return lines
}

// holders say who holds, in the tables or on the disk.
func (s view) holders(where string) (lines []string) {
	if h := s.value(where+"holder", ""); h != "nobody" {
		lines = append(lines, fmt.Sprintf("%s (%s) holds alone with token %s until %s", h, s.of["(kind "+h+")"],
			s.value(where+"version", ""), s.value(where+"until", "")))
	}
	for _, a := range elements["Acq"] {
		if s.value(where+"shares", a) == "false" {
			continue
		}
		kind, slot := s.of["(kind "+a+")"], ""
		if kind == "permit" {
			slot = fmt.Sprintf(", slot %s of %s", s.value(where+"slot", a), s.value(where+"permits", ""))
		}
		lines = append(lines, fmt.Sprintf("%s (%s%s) holds with token %s until %s", a, kind, slot,
			s.value(where+"token", a), s.value(where+"ends", a)))
	}
	return lines
}

// client says what else there is of an acquisition.
func (s view) client(a string) (lines []string) {
	if s.value("waits", a) == "true" {
		lines = append(lines, a+" waits")
	}
	if s.value("pinned", a) == "true" {
		lines = append(lines, fmt.Sprintf("a transaction guards %s with token %s", a, s.value("guarded", a)))
	}
	if s.value("renewing", a) == "true" {
		lines = append(lines, fmt.Sprintf("a renewal of %s until %s has not committed", a, s.value("new-end", a)))
	}
	if s.value("over", a) == "true" {
		lines = append(lines, a+" has been given up")
	}
	return lines
}

// request says what a client was told.
func (s view) request(r string) []string {
	stage, a := s.value("stage", r), s.of["(of "+r+")"]
	switch stage {
	case "unsent":
		return nil
	case "sent":
		return []string{fmt.Sprintf("%s of %s is sent", r, a)}
	}
	return []string{fmt.Sprintf("%s of %s is %s: token %s, from %s on for %s by its clock, which is at %s; the database's was at %s then",
		r, a, stage, s.value("received", r), s.value("from", r), s.of["(trusted (worth"+s.suffix+" "+r+"))"], s.value("local", a), s.value("began", r))}
}
