package main

// The bugs below show only where options, kinds of acquisitions, ways to end a lease, and events
// meet.

// options is a cell of clients with all kinds of options.
func options(nemesis, database string) catcher { return cell(nemesis, "options", database) }

var combined = []bug{
	{"what is handed over is trusted for its LockDelay, too", []edit{
		{"acquisition.go", "left := min(t.ttl, r.Result.Remaining-beyond)", "left := min(t.ttl, r.Result.Remaining+0*beyond)"},
	}, options("net-lost-reply", "mariadb")},
	{"UnlockTx forgets MinHold", []edit{
		{"unlocktx.go", "Guarded: guarded, MinHold: t.minHold}", "Guarded: guarded}"},
	}, options("none", "postgres")},
	{"Unlock forgets MinHold after a Guard", []edit{
		{"unlock.go", "MinHold: t.keptFor(), Guarded: t.isGuarded(), Shared: t.together(), Permit: t.permit,",
			"MinHold: map[bool]time.Duration{false: t.keptFor()}[t.isGuarded()], Guarded: t.isGuarded(), Shared: t.together(), Permit: t.permit,"},
	}, options("none", "mariadb")},
	{"the second name of a batch gets the answer of the first if it has other permits", []edit{
		{"internal/rowstore/acquire.go", "\t\t\tres[i] = w.result(&a, visit, q.Kind, before)\n\t\t}\n\t\treturn nil\n\t}\n\treturn e\n}\n\n// result",
			"\t\t\tres[i] = w.result(&a, visit, q.Kind, before)\n\t\t\tif k > 0 {\n\t\t\t\tres[i].Permits = 0\n\t\t\t}\n\t\t}\n\t\treturn nil\n\t}\n\treturn e\n}\n\n// result"},
	}, options("none", "mariadb")},
	{"a detached term is free for the second name of a batch", []edit{
		{"internal/rowstore/acquire.go", "\t\t\tbefore := len(visit.Crashed())\n\t\t\tq := s.request(&reqs[i])\n",
			"\t\t\tbefore := len(visit.Crashed())\n\t\t\tq := s.request(&reqs[i])\n\t\t\tif r := visit.Row(); k > 0 && r.Locker == (driver.ID{}) {\n\t\t\t\tr.Expires = 0\n\t\t\t}\n"},
	}, options("none", "sqlite")},
	{"MaxHold does not bound what was handed over", []edit{
		{"acquisition.go", "\tif a.opts.hasMaxHold {\n\t\tt.latestEnd = a.", "\tif a.opts.hasMaxHold && !r.Result.Found {\n\t\tt.latestEnd = a."},
	}, options("none", "postgres")},
	{"Adopt keeps the token", []edit{
		{rules, "\tv.grant(r, r.TTL)\n\ta, _ = v.held(r.Acq)\n\treturn a, false\n}\n\n// Resume", "\ttoken := v.row.Version\n\tv.grant(r, r.TTL)\n\tv.row.Version = token\n\ta, _ = v.held(r.Acq)\n\treturn a, false\n}\n\n// Resume"},
	}, options("none", "sqlite")},
	{"the renewal of a permit extends another slot", []edit{
		{pg, "\tFOR NO KEY UPDATE OF c SKIP LOCKED\n)\nUPDATE {claim} c\nSET holds = m.holds, expires_at = greatest(c.expires_at, least(\n\t(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(c.limit_at, 0)))\nFROM mine m\nWHERE c.acq = m.acq AND c.acq = ANY ($2::uuid[]) AND c.token = m.token\n  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint\nRETURNING encode(uuid_send(c.acq), 'hex'),",
			"\tFOR NO KEY UPDATE OF c SKIP LOCKED\n)\nUPDATE {claim} c\nSET expires_at = greatest(c.expires_at, least(\n\t(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(c.limit_at, 0)))\nFROM mine m\nWHERE c.acq = coalesce((\n\tSELECT o.acq FROM {claim} o, {claim} i\n\tWHERE i.acq = m.acq AND i.kind = 2 AND o.name = i.name AND o.state = 1 ORDER BY o.slot DESC LIMIT 1), m.acq)\n  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint\nRETURNING encode(uuid_send(m.acq), 'hex'),"},
	}, options("none", "postgres")},
	{"a renewal of a lease with MaxHold forgets LockDelay", []edit{
		{"keeper.go", "TTL: ttl + t.lockDelay,", "TTL: ttl + map[bool]time.Duration{true: t.lockDelay}[t.latestEnd == never],"},
	}, options("client-pause", "postgres")},
	{"a Value gets lost in a hand-over", []edit{
		{rules, "v.grant(Request{Party: next.Party, Limits", "next.Value = nil\n\t\tv.grant(Request{Party: next.Party, Limits"},
	}, options("none", "sqlite")},
	{"Once does not look again after it has waited", []edit{
		{"once.go", "\tcase state.Complete:\n\t\treturn nil, nil\n\tcase !state.Current:", "\tcase !state.Current && !state.Complete:"},
	}, options("none", "mariadb")},
	{"a detached term lasts for a third of its TTL", []edit{
		{rules, "\tv.row.Expires = v.Now + ttl\n\tv.changes.Durable = true\n\treturn true, false", "\tv.row.Expires = v.Now + ttl/3\n\tv.changes.Durable = true\n\treturn true, false"},
	}, options("none", "sqlite")},
	{"Unlock after a transaction that was rolled back frees nothing", []edit{
		{"unlocktx.go", "		_, err := l.mode.Release(ctx, []driver.ReleaseRequest{req})\n		return err\n	})\n	if err == nil {\n		l.claims.recheck",
			"		_ = req\n		return nil\n	})\n	if err == nil {\n		l.claims.recheck"},
	}, options("none", "mariadb")},
	{"an election has no LockDelay", []edit{
		{"election.go", "LockDelay(o.LockDelay), Value(o.Value)", "LockDelay(0), Value(o.Value)"},
	}, options("client-kill", "sqlite")},
	{"a reader with a long TTL is forgotten while somebody waits", []edit{
		{rules, "	return c.State == Holding && (c.Expires > v.Now || !v.Locked(c.Acq))",
			"	if c.Kind == Shared && c.Expires > v.Now+9_000_000 && c.Since < v.Now-100_000 && v.row.Waiting > 0 {\n		return false\n	}\n	return c.State == Holding && (c.Expires > v.Now || !v.Locked(c.Acq))"},
	}, options("none", "mariadb")},
}
