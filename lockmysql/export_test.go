package lockmysql

import "github.com/sqllock/sqllock/driver"

// Classify is what the stores' Classify does.
func Classify(err error) driver.Fault { return classify(err) }

// ErrLocked is what a call returns that has waited for a row in vain.
var ErrLocked = errLocked

// Unresolved makes an error of a call that did something before it.
func Unresolved(err error) error { return &unresolvedError{err} }

// Statements returns the texts over the lock table, by name.
func Statements(prefix string) map[string]string {
	q := newQueries(prefix)
	return map[string]string{
		"look": q.look, "lookMany": q.lookMany, "grant": q.grant, "grantMany": q.grantMany, "renew": q.renew,
		"release": q.release, "releaseMany": q.releaseMany, "abandon": q.abandon,
	}
}

// Judge tells what is thought of a server that says this of itself.
func Judge(d *Database, version string, variables map[string]string, noRedo bool) (warnings []string, err error) {
	s, err := parse(version)
	if err != nil {
		return nil, err
	}
	s.variables, s.noRedo = variables, noRedo
	var info driver.Info
	err = d.refuse(s, &info)
	return info.Warnings, err
}
