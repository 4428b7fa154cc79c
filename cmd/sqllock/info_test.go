package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

func TestReadersAndSessionsAreShown(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_700_000_000_000_000)
	info := sqllock.Info{Name: "n", State: sqllock.StateHeld, Token: 7, Since: now.Add(-time.Minute), Now: now}
	with := func(change func(*sqllock.Info)) *lockInfo {
		i := info
		change(&i)
		return &lockInfo{advisory, i}
	}
	for want, i := range map[string]*lockInfo{
		"n advisory held 7 1m0s ago session - - -":              with(func(*sqllock.Info) {}),
		`n advisory held 7 1m0s ago session - - "3 readers"`:    with(func(i *sqllock.Info) { i.Label = "3 readers" }),
		"n advisory held 7 1m0s ago session - - 1 reader":       with(func(i *sqllock.Info) { i.Readers = 1 }),
		"n advisory held 7 1m0s ago in 1m0s - - 3 readers":      with(func(i *sqllock.Info) { i.Readers, i.Until = 3, now.Add(time.Minute) }),
		"n advisory released 7 - 5.0s ago - - -":                with(func(i *sqllock.Info) { i.State, i.Until = sqllock.StateReleased, now.Add(-5*time.Second) }),
		"n advisory held 7 1m0s ago session - - host/program/1": with(func(i *sqllock.Info) { i.Label, i.KeptUntil = "host/program/1", now.Add(time.Hour) }),
		"n advisory held 7 1m0s ago session - 12 1 reader":      with(func(i *sqllock.Info) { i.Readers, i.Waiters = 1, 12 }),
	} {
		r := i.row()
		if got := strings.Join(r, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	detached := with(func(i *sqllock.Info) {
		i.State, i.Label, i.Until, i.KeptUntil = sqllock.StateDetached, "host/program/1", now.Add(time.Minute), now.Add(time.Hour)
	})
	if got := strings.Join(detached.row(), " "); got != "n advisory detached 7 1m0s ago in 1h0m - - host/program/1" || isFree(&detached.Info) {
		t.Errorf("detached: %s, free: %v", got, isFree(&detached.Info))
	}
	if text := sentence(&detached.Info); text != "detached by host/program/1 (token 7), which expires in 1m0s" {
		t.Errorf("in a sentence: %s", text)
	}
	shared := with(func(i *sqllock.Info) { i.Readers = 3 })
	if text := strings.Join(strings.Fields(string(shared.fields())), " "); !strings.HasPrefix(text, "name n mode advisory state held readers 3 token 7 ") ||
		!strings.HasSuffix(text, "until its session ends") {
		t.Errorf("in detail: %s", text)
	}
	if text := string(shared.json()); !strings.Contains(text, `"mode":"advisory"`) || !strings.Contains(text, `"readers":3`) || strings.Contains(text, "until") {
		t.Errorf("as JSON: %s", text)
	}
	if text := sentence(&shared.Info); text != "held by 3 readers (token 7) since 1m0s ago" {
		t.Errorf("in a sentence: %s", text)
	}
}
