package main

import (
	"context"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"github.com/sqllock/sqllock/driver"
)

// handle does what a key says. It reports whether that is the end.
func (t *top) handle(ctx context.Context, ev tcell.Event) (end bool) {
	switch ev := ev.(type) {
	case *tcell.EventResize:
		t.screen.Sync()
		t.draw() // which counts the rows anew
		t.fresh = false
		t.begin(ctx)
	case *tcell.EventKey:
		switch {
		case ev.Key() == tcell.KeyCtrlC:
			return true
		case ev.Key() == tcell.KeyCtrlZ:
			t.suspend()
		case t.typing:
			t.typeKey(ctx, ev)
		case ev.Key() == tcell.KeyEscape || ev.Key() == tcell.KeyBackspace || ev.Key() == tcell.KeyBackspace2:
			t.back(ctx)
		default:
			return t.key(ctx, ev)
		}
	}
	return false
}

// typeKey is a key while the prefix is typed.
func (t *top) typeKey(ctx context.Context, ev *tcell.EventKey) {
	switch ev.Key() {
	case tcell.KeyEscape:
		t.typing = false
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		_, size := utf8.DecodeLastRuneInString(t.typed)
		t.typed = t.typed[:len(t.typed)-size]
	case tcell.KeyCtrlU:
		t.typed = ""
	case tcell.KeyRune:
		t.typed += string(ev.Rune())
	case tcell.KeyEnter:
		if t.typed != "" && driver.CheckName(t.typed) != nil {
			t.problem = "no name begins so"
			return
		}
		t.typing = false
		t.request(ctx, topQuery{prefix: t.typed, free: t.query.free, order: t.query.order})
	}
	t.problem = ""
}

// back goes back to the list, or to all names.
func (t *top) back(ctx context.Context) {
	switch {
	case t.view == viewName:
		t.view, t.query.name = viewList, ""
		t.begin(ctx)
	case t.view != viewList:
		t.view = viewList
	case t.query.prefix != "" || t.query.after != "" || t.query.from > 0:
		t.request(ctx, topQuery{free: t.query.free, order: t.query.order})
	}
}

// key is a key that means something in all views, or in this one.
func (t *top) key(ctx context.Context, ev *tcell.EventKey) (end bool) {
	switch {
	case ev.Rune() == 'q' && ev.Key() == tcell.KeyRune:
		return true
	case isKey(ev, tcell.KeyF1, '?', 'h'):
		t.show(ctx, viewHelp)
	case isKey(ev, tcell.KeyCtrlL, 'r'):
		t.screen.Sync()
		t.begin(ctx)
	case t.view == viewList:
		t.listKey(ctx, ev)
	default:
		t.textKey(ev)
	}
	return false
}

// isKey reports that an event is a key, or one of the characters.
func isKey(ev *tcell.EventKey, key tcell.Key, characters ...rune) bool {
	if ev.Key() != tcell.KeyRune {
		return ev.Key() == key
	}
	for _, r := range characters {
		if ev.Rune() == r {
			return true
		}
	}
	return false
}

// show changes the view.
func (t *top) show(ctx context.Context, v topView) {
	wasName := t.query.name != ""
	t.view, t.scroll, t.aside, t.query.name = v, 0, 0, ""
	if v == viewName {
		t.query.name = t.got.rows[t.selected].Name
		t.got.info = t.got.rows[t.selected]
		t.got.changes = nil
	}
	if v == viewName || wasName {
		t.begin(ctx)
	}
}

// listKey is a key for the list.
func (t *top) listKey(ctx context.Context, ev *tcell.EventKey) {
	last := len(t.got.rows) - 1
	switch {
	case isKey(ev, tcell.KeyDown, 'j'):
		t.selected = max(0, min(t.selected+1, last))
	case isKey(ev, tcell.KeyUp, 'k'):
		t.selected = max(t.selected-1, 0)
	case isKey(ev, tcell.KeyEnter, 'i') && last >= 0:
		t.show(ctx, viewName)
	case isKey(ev, tcell.KeyPgDn, 'n', ' '):
		t.pages++
		t.nextPages(ctx)
	case isKey(ev, tcell.KeyPgUp, 'p') && len(t.before) > 0:
		before := t.before[:len(t.before)-1]
		t.request(ctx, t.before[len(before)])
		t.before = before
	case isKey(ev, tcell.KeyHome, 'g'):
		t.request(ctx, topQuery{prefix: t.query.prefix, free: t.query.free, order: t.query.order})
	case isKey(ev, tcell.KeyRune, '/'):
		t.typing, t.typed = true, t.query.prefix
	case isKey(ev, tcell.KeyRune, 's'):
		t.request(ctx, topQuery{prefix: t.query.prefix, free: t.query.free, order: (t.query.order + 1) % topOrders})
	case isKey(ev, tcell.KeyRune, 'f'):
		t.request(ctx, topQuery{prefix: t.query.prefix, free: !t.query.free, order: t.query.order})
	case isKey(ev, tcell.KeyRune, 'l'):
		t.show(ctx, viewLosses)
	}
}

// textKey is a key for a view that is a text.
func (t *top) textKey(ev *tcell.EventKey) {
	const sideways = 20
	switch {
	case isKey(ev, tcell.KeyDown, 'j'):
		t.scroll++
	case isKey(ev, tcell.KeyUp, 'k'):
		t.scroll--
	case isKey(ev, tcell.KeyPgDn, 'n', ' '):
		t.scroll += t.lines
	case isKey(ev, tcell.KeyPgUp, 'p'):
		t.scroll -= t.lines
	case isKey(ev, tcell.KeyHome, 'g'):
		t.scroll, t.aside = 0, 0
	case isKey(ev, tcell.KeyRight):
		t.aside += sideways
	case isKey(ev, tcell.KeyLeft):
		t.aside = max(0, t.aside-sideways)
	}
}
