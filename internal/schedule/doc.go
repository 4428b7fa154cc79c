// Package schedule lets Lockers work on a database in memory that runs package claim, under
// testing/synctest, with faults at every call. A number decides all that is random: the options,
// what the callers do, how long each call takes, and the faults. So a schedule that fails can be
// repeated.
package schedule
