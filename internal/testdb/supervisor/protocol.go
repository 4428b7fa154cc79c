package supervisor

// An operation is the kind of a request.
type operation string

const (
	opMkdir     operation = "mkdir"
	opStart     operation = "start"
	opPoll      operation = "poll"
	opInterrupt operation = "interrupt"
	opTerminate operation = "terminate"
	opPause     operation = "pause"
	opResume    operation = "resume"
	opKill      operation = "kill"
	opRemove    operation = "remove"
)

// request and reply go through the pipes as JSON, one reply for each request.
type request struct {
	Op      operation
	Pid     int
	Command Command
}

type reply struct {
	Pid    int
	Dir    string
	Ended  bool
	Status string
	Error  string
}
