//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/sqllock/sqllock"
)

// The reaper in the background makes its first pass after half a minute, which is too
// late to be seen.
func TestNoSubcommandReapsInTheBackground(t *testing.T) {
	t.Parallel()
	if o := (&runner{app: testApp()}).lockerOptions().Reaper; o == nil || !o.Off {
		t.Errorf("run: %+v", o)
	}
	var reaper *sqllock.ReaperOptions
	action := testApp().newAction(func(_ context.Context, o *action) error {
		reaper = o.opts.Reaper
		return nil
	})
	if err := action(t.Context(), nil); err != nil || reaper == nil || !reaper.Off {
		t.Errorf("%+v, %v", reaper, err)
	}
}
