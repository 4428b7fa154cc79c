//go:build linux

package main

import (
	"slices"
	"testing"
)

func TestEachBugFitsTheSource(t *testing.T) {
	p := planter{root: "../..", dir: t.TempDir()}
	names := make(map[string]bool)
	for _, b := range slices.Concat(bugs, combined, around, scheduled) {
		if names[b.name] {
			t.Errorf("two bugs are named %q", b.name)
		}
		names[b.name] = true
		if _, err := p.overlay(b); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	if len(bugs) < 16 {
		t.Errorf("%d bugs", len(bugs))
	}
}
