package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
	"github.com/sqllock/sqllock/internal/output"
)

// lockInfo is what the database knows of a name in one mode.
type lockInfo struct {
	mode mode
	sqllock.Info
}

// state is the state of a name in one word.
func state(i *sqllock.Info) string { return monitor.State(i) }

// hasTerm reports that a term goes on, that of a holder or one that is detached.
func hasTerm(i *sqllock.Info) bool { return monitor.IsHeld(i) }

// heldBySession reports that a session of the database keeps the name as long as it lasts.
func heldBySession(i *sqllock.Info) bool { return i.State == sqllock.StateHeld && i.Until.IsZero() }

// isFree reports that the next caller gets the name.
func isFree(i *sqllock.Info) bool { return !hasTerm(i) && i.KeptUntil.IsZero() }

// rowHeading is the heading of a table of names. The label of the holder is last, so that
// nothing on its line follows a text that may be written from right to left.
var rowHeading = []string{"NAME", "MODE", "STATE", "TOKEN", "SINCE", "UNTIL", "DONE", "WAITERS", "HOLDER"}

// row returns the cells of a name in such a table.
func (i *lockInfo) row() []string {
	since := "-"
	if hasTerm(&i.Info) {
		since = output.Relative(i.Since, i.Now)
	}
	return []string{output.Word(i.Name), string(i.mode), state(&i.Info), strconv.FormatInt(i.Token, 10), since, until(&i.Info), done(&i.Info), waiters(&i.Info), holder(&i.Info)}
}

// until tells when a name becomes free if nothing happens.
func until(i *sqllock.Info) string {
	switch {
	case heldBySession(i):
		return "session"
	case i.Until.Before(i.KeptUntil):
		return output.Relative(i.KeptUntil, i.Now)
	}
	return output.Relative(i.Until, i.Now)
}

// done tells when a key of the name was completed last.
func done(i *sqllock.Info) string {
	if i.LastDone.At.IsZero() {
		return "-"
	}
	return output.Relative(i.LastDone.At, i.Now)
}

// waiters tells how many wait for a name.
func waiters(i *sqllock.Info) string {
	if i.Waiters == 0 {
		return "-"
	}
	return strconv.Itoa(i.Waiters)
}

// holder tells in a word or two who holds a name. A label of two words is quoted.
func holder(i *sqllock.Info) string {
	switch {
	case i.Readers == 1:
		return "1 reader"
	case i.Readers > 1:
		return strconv.Itoa(i.Readers) + " readers"
	case i.PermitsHeld > 0:
		return fmt.Sprintf("%d of %d permits", i.PermitsHeld, i.Permits)
	case i.Label != "":
		return output.Word(i.Label)
	}
	return "-"
}

// fields returns what is known of a name, a line for each field.
func (i *lockInfo) fields() []byte {
	f := output.NewFields()
	addTime := func(key string, t time.Time) {
		if !t.IsZero() {
			f.Add(key, output.Time(t)+"  "+output.Relative(t, i.Now))
		}
	}
	f.AddWord("name", i.Name)
	f.Add("mode", string(i.mode))
	f.Add("state", state(&i.Info))
	f.AddWord("holder", i.Label)
	f.AddWord("owner", i.Owner)
	if i.Readers > 0 {
		f.Add("readers", strconv.Itoa(i.Readers))
	}
	if i.Permits > 0 {
		f.Add("permits", fmt.Sprintf("%d, %d held", i.Permits, i.PermitsHeld))
	}
	for _, h := range i.Holders { // the label is last, see rowHeading
		f.Add(i.kindOf(h), fmt.Sprintf("token %d  since %s  until %s  %s", h.Token, output.Relative(h.Since, i.Now), output.Relative(h.Until, i.Now), output.Word(h.Label)))
	}
	if i.State != sqllock.StateUnknown {
		f.Add("token", strconv.FormatInt(i.Token, 10))
	}
	if i.Holds > 0 {
		f.Add("holds", strconv.Itoa(i.Holds))
	}
	addTime("since", i.Since)
	addTime("until", i.Until)
	if heldBySession(&i.Info) {
		f.Add("until", "its session ends")
	}
	addTime("kept until", i.KeptUntil)
	if k := i.LastDone; k.Key != "" {
		f.AddWord("done key", k.Key)
		f.Add("attempt", strconv.Itoa(k.Attempt))
		addTime("done", k.At)
	}
	f.AddValue(i.Value)
	if i.Waiters > 0 {
		f.Add("waiters", strconv.Itoa(i.Waiters))
	}
	for _, w := range i.Queue { // the label is last, see rowHeading
		f.Add("waiter", fmt.Sprintf("%s  since %s  %s  %s", w.Kind, output.Time(w.Since), output.Relative(w.Since, i.Now), output.Word(w.Label)))
	}
	return f.Bytes()
}

// kindOf tells what one of those who hold the name together has of it.
func (i *lockInfo) kindOf(h sqllock.Holder) string {
	if i.PermitsHeld > 0 {
		return "slot " + strconv.Itoa(h.Slot)
	}
	return "reader"
}

// holderInfo is one of those who hold a name together, as JSON.
type holderInfo struct {
	Slot  *int   `json:"slot,omitempty"` // nil if it is a reader
	Label string `json:"label"`
	Owner string `json:"owner"`
	Token int64  `json:"token"`
	Since string `json:"since"`
	Until string `json:"until"`
}

// holders returns the first of those who hold the name together.
func (i *lockInfo) holders() (all []holderInfo) {
	for _, h := range i.Holders {
		x := holderInfo{Label: h.Label, Owner: h.Owner, Token: h.Token, Since: output.Time(h.Since), Until: output.Time(h.Until)}
		if i.PermitsHeld > 0 {
			x.Slot = &h.Slot
		}
		all = append(all, x)
	}
	return all
}

// waiterInfo is a caller that waits, as JSON.
type waiterInfo struct {
	Label string `json:"label"`
	Since string `json:"since"`
	Kind  string `json:"kind"`
}

// queue returns the first of those who wait.
func (i *lockInfo) queue() (all []waiterInfo) {
	for _, w := range i.Queue {
		all = append(all, waiterInfo{w.Label, output.Time(w.Since), w.Kind.String()})
	}
	return all
}

// json returns what is known of a name as a JSON object on one line.
func (i *lockInfo) json() []byte {
	o := struct {
		Name      string       `json:"name,omitempty"`
		Mode      string       `json:"mode"`
		State     string       `json:"state"`
		Label     string       `json:"label,omitempty"`
		Owner     string       `json:"owner,omitempty"`
		Token     *int64       `json:"token,omitempty"` // nil if the name is not known
		Holds     int          `json:"holds,omitempty"`
		Readers   int          `json:"readers,omitempty"`
		Permits   int          `json:"permits,omitempty"`
		Held      int          `json:"permits_held,omitempty"`
		Holders   []holderInfo `json:"holders,omitempty"`
		Since     string       `json:"since,omitempty"`
		Until     string       `json:"until,omitempty"`
		KeptUntil string       `json:"kept_until,omitempty"`
		DoneKey   string       `json:"done_key,omitempty"`
		Attempt   int          `json:"done_attempt,omitempty"`
		Done      string       `json:"done,omitempty"`
		Waiters   int          `json:"waiters,omitempty"`
		Queue     []waiterInfo `json:"queue,omitempty"`
		output.Value
		Now string `json:"now,omitempty"`
	}{
		Name: i.Name, Mode: string(i.mode), State: i.State.String(), Label: i.Label, Owner: i.Owner, Holds: i.Holds, Readers: i.Readers,
		Permits: i.Permits, Held: i.PermitsHeld, Holders: i.holders(),
		Since: output.Time(i.Since), Until: output.Time(i.Until), KeptUntil: output.Time(i.KeptUntil),
		DoneKey: i.LastDone.Key, Attempt: i.LastDone.Attempt, Done: output.Time(i.LastDone.At),
		Waiters: i.Waiters, Queue: i.queue(), Value: output.NewValue(i.Info.Value), Now: output.Time(i.Now),
	}
	if i.State != sqllock.StateUnknown {
		o.Token = &i.Token
	}
	return output.JSON(o)
}

// sentence tells who holds a name, or why it is not free, to follow "NAME is".
func sentence(i *sqllock.Info) string {
	who := fmt.Sprintf("%s (owner %s, token %d)", output.Word(i.Label), output.Word(i.Owner), i.Token)
	if i.Readers > 0 || i.PermitsHeld > 0 {
		who = fmt.Sprintf("%s (token %d)", holder(i), i.Token)
	}
	switch {
	case i.State == sqllock.StateHeld:
		return "held by " + who + " since " + output.Relative(i.Since, i.Now)
	case i.State == sqllock.StateDetached:
		return fmt.Sprintf("detached by %s (token %d), which expires %s", output.Word(i.Label), i.Token, output.Relative(i.Until, i.Now))
	case state(i) == "kept":
		return "kept by a minimum hold or a lock delay, which ends " + output.Relative(i.KeptUntil, i.Now)
	case i.State == sqllock.StateExpired && i.Owner != "":
		return "left behind by " + who + ", whose lease expired " + output.Relative(i.Until, i.Now)
	}
	return i.State.String()
}
