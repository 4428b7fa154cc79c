// Package gocronlock lets several processes run the same gocron schedule. Each job runs
// in one of them. The locks are those of package sqllock, in the database that the
// processes share.
//
// There are two ways. Gocron uses one of them at a time:
//
//   - With an [Elector], one process leads and runs all jobs. If the leader crashes, the
//     next process leads within one TTL. Jobs that are due in between are skipped.
//   - With a [Locker], each process tries to lock a job when the job is due. The first
//     process runs it. Jobs are spread over the processes. If a process crashes, only the
//     jobs that it was running are lost.
//
// An [OnceTask] needs neither. Each scheduled time of its job runs to its end once, and can be
// caught up when it was missed.
//
// Each due job runs at most once if the clocks of the processes differ by less than
// [Settle], or [sqllock.MinHold], allows. If a process is paused during a job, it continues
// the job later, when another process may be running it too. [sqllock.Lease] describes how
// the job can notice that, and how the database refuses writes that come too late.
//
// To stop, shut the scheduler down first, then close the Elector, then the sqllock.Locker.
package gocronlock
