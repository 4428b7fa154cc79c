// Package gocronlock lets a gocron scheduler run in any number of processes at once,
// with a lock of package sqllock in the database that they share.
//
// There are two ways, and gocron uses one of them at a time:
//
//   - An [Elector] has one process lead, and all jobs run there. If it dies the next one
//     leads within the TTL; what was due meanwhile runs nowhere.
//   - A [Locker] has every process try to lock a job when that is due, and whoever is
//     first runs it: so jobs spread over the processes, and one that dies costs no run
//     but its own.
//
// With both, what is due runs at most once, as long as the clocks of the processes
// differ by no more than [Settle], or [sqllock.MinHold], allows. A process that is
// paused while a job runs goes on with it later, when others may run it: see
// [sqllock.Lease] for how a job learns of it, and for writes that must not come late.
//
// Shut the scheduler down first, then close the Elector, then the sqllock.Locker.
package gocronlock
